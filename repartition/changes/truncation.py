"""Truncations among change events (`op: t`): every row from before is gone, whatever its key.

Debezium sends them with neither key nor row ("Truncate events"; most connectors skip them unless they are told not to).
"""

from __future__ import annotations

from typing import Any, Final

from converter.parquet import columns
from repartition.changes.envelope import lifted
from repartition.changes.select import IDENTITY
from repartition.errors import RepartitionError
from rsm_bridge.config.projections import ProjectionRule

_NEVER: Final = "timestamp'0001-01-01 00:00:00'"


def truncated_before(records: Any, rule: ProjectionRule, partitions: int) -> str | None:
    """A condition on rows of the projection, and on changes, for what the last truncation takes; None without one.

    Args:
        records: a frame over the topic's table: what one run reads.
        rule: the projection's.
        partitions: how many the topic has.

    Raises:
        RepartitionError: `key_moved` if nobody can say which rows are from before.
    """
    from pyspark.sql import functions

    if rule.envelope != "debezium":
        return None
    events = lifted(records)
    if "op" not in events.columns:
        return None
    order = [functions.col(name) for name in IDENTITY]
    if rule.key_order == "timestamp":
        order.insert(0, functions.coalesce(functions.col(columns.TIMESTAMP), functions.expr(_NEVER)).cast("string"))
    found = events.where("op = 't'").select(functions.max(functions.struct(*order)).alias("last")).collect()[0]["last"]
    if found is None:
        return None
    *time, partition, offset = found
    if time:
        place = f"coalesce({columns.TIMESTAMP}, {_NEVER}), {columns.PARTITION}, {columns.OFFSET}"
        return f"({place}) < (timestamp'{time[0]}', {partition}, {offset}L)"
    if partitions > 1:
        raise RepartitionError(
            "key_moved",
            f"partition {partition}, offset {offset}: a truncation takes rows of all partitions, and key_order is "
            f"{rule.key_order}: nobody can say which are from before. Set key_order: timestamp",
        )
    return f"({columns.OFFSET} < {offset} OR {columns.OFFSET} IS NULL)"  # null: from before it was adopted
