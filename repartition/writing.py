"""Rows into a table, or a branch of it, with the frontier as a property of the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from converter import columns
from repartition.changes import DELETED, IDENTITY, STEP
from repartition.errors import RepartitionError
from repartition.frontier import FRONTIER, Frontier
from repartition.statements import KEY_MOVED, merge_statement
from rsm_bridge.copy_rules import CopyRule

_PROPERTY: Final = f"spark.sql.iceberg.snapshot-property.{FRONTIER}"
_CHANGES: Final = "tierberg_changes"
_RANK: Final = "__tierberg_rank"


def append(session: Any, rows: Any, branch: str, after: Frontier) -> None:
    """Adds the rows; columns of the table that they have not are null. Commits when there are none, too."""
    from pyspark.sql import functions

    given = set(rows.columns)
    told = [
        functions.col(f"`{f.name}`") if f.name in given else functions.lit(None).cast(f.dataType).alias(f.name)
        for f in session.table(branch).schema.fields
    ]
    rows.select(*told).writeTo(branch).option(f"snapshot-property.{FRONTIER}", after.encode()).append()


def upsert(session: Any, rows: Any, branch: str, after: Frontier, rule: CopyRule) -> None:
    """Applies the latest change of each key.

    Raises:
        RepartitionError: `key_moved`.
    """
    latest = _latest(rows, rule)
    latest.createOrReplaceTempView(_CHANGES)
    names = [name for name in latest.columns if name != DELETED]
    try:
        with _recording(session, after), _moved_keys():
            session.sql(merge_statement(branch, _CHANGES, rule.key, names, rule.key_order))
    finally:
        session.catalog.dropTempView(_CHANGES)


def cut(session: Any, branch: str, first_offsets: Mapping[int, int]) -> None:
    """Deletes what was made of records from these offsets on, by Kafka partition."""
    conditions = [
        f"({columns.PARTITION} = {partition} AND {columns.OFFSET} >= {offset})"
        for partition, offset in sorted(first_offsets.items())
    ]
    session.sql(f"DELETE FROM {branch} WHERE {' OR '.join(conditions)}")


def _latest(rows: Any, rule: CopyRule) -> Any:
    """The last change of each key."""
    from pyspark.sql import Window, functions

    by_key = Window.partitionBy(*(functions.col(f"`{name}`") for name in rule.key))
    partition, offset = IDENTITY
    order = [functions.col(name) for name in (partition, offset, STEP)]
    if rule.key_order == "timestamp":
        order.insert(0, functions.col(columns.TIMESTAMP))
    numbered = rows.withColumn(_RANK, functions.row_number().over(by_key.orderBy(*(item.desc() for item in order))))
    if rule.key_order == "partition":
        several = functions.min(partition).over(by_key) != functions.max(partition).over(by_key)
        named = functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in rule.key)))
        text = functions.concat(functions.lit(f"{KEY_MOVED}: "), named)
        checked = functions.when(several, functions.raise_error(text).cast("long")).otherwise(functions.col(offset))
        numbered = numbered.withColumn(offset, checked)
    return numbered.where(f"{_RANK} = 1").drop(_RANK, STEP)


@contextlib.contextmanager
def _recording(session: Any, after: Frontier) -> Iterator[None]:
    """SQL commits of the block write the frontier."""
    session.conf.set(_PROPERTY, after.encode())
    try:
        yield
    finally:
        session.conf.unset(_PROPERTY)


@contextlib.contextmanager
def _moved_keys() -> Iterator[None]:
    """The error that a statement of ours raises, as an error of ours."""
    try:
        yield
    except Exception as error:
        if KEY_MOVED not in str(error):
            raise
        text = str(error)[str(error).index(KEY_MOVED) :].partition("\n")[0]
        raise RepartitionError(
            "key_moved", f"{text}. Take a key that stays in its partition, or set key_order: timestamp"
        ) from error
