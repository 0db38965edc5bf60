"""The last change of each key among those of one run, with what it keeps of those before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from converter.parquet import columns
from repartition.changes.envelope import DELETED
from repartition.changes.select import IDENTITY, KEPT, MARK, MOVED, STEP
from rsm_bridge.config.projections import ProjectionRule

#: How the error for a key that is met in another partition begins.
KEY_MOVED: Final = "key_order is partition, and this key is in several partitions"
#: With `soft_deletes`: the change marks a row of the projection's table, and makes none where that has none.
MARKS: Final = "__tierberg_marks"
_RANK: Final = "__tierberg_rank"
_THERE: Final = "__tierberg_there"
_TOLD: Final = "__tierberg_told_"


def ordered_by(rule: ProjectionRule) -> tuple[str, ...]:
    """Columns by which a change of a key is later than another, compared one after the other; null comes first."""
    first = (columns.TIMESTAMP,) if rule.key_order == "timestamp" else rule.source_order
    return (*first, *IDENTITY)


def latest_changes(rows: Any, rule: ProjectionRule, may_keep: Sequence[str]) -> Any:
    """At most one row per key, without STEP.

    KEPT has columns whose value only the projection's table can tell; it is there if `may_keep` has any. MARKS is there
    under `soft_deletes`.

    Args:
        rows: of the changes, with DELETED, STEP and KEPT.
        rule: the projection's.
        may_keep: columns that KEPT may have.
    """
    from pyspark.sql import Window, functions

    by_key = Window.partitionBy(*(functions.col(f"`{name}`") for name in rule.key))
    partition, offset = IDENTITY
    order = [functions.col(f"`{name}`") for name in (*ordered_by(rule), STEP)]
    newest_first = by_key.orderBy(*(item.desc() for item in order))
    # The whole of a key for each of its rows, worked out once per key: only its first row stays.
    within = newest_first.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    told = [_told(name, soft=rule.soft_deletes).over(within).alias(f"{_TOLD}{name}") for name in may_keep]
    there = [_there().over(within).alias(_THERE)] if rule.soft_deletes else []
    numbered = rows.select("*", functions.row_number().over(newest_first).alias(_RANK), *told, *there)
    if rule.key_order == "partition":
        several = functions.min(partition).over(by_key) != functions.max(partition).over(by_key)
        named = functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in rule.key)))
        text = functions.concat(functions.lit(f"{KEY_MOVED}: "), named)
        checked = functions.when(several, functions.raise_error(text).cast("long")).otherwise(functions.col(offset))
        numbered = numbered.withColumn(offset, checked)
    last = numbered.where(f"{_RANK} = 1")
    return last.select(*_settled(rows.columns, may_keep, soft=rule.soft_deletes))


def _settled(names: Sequence[str], may_keep: Sequence[str], *, soft: bool) -> list[Any]:
    """Columns of the last change, completed from those before it."""
    from pyspark.sql import functions

    told = {name: functions.col(f"`{_TOLD}{name}`") for name in may_keep}
    made = {name: functions.col(f"`{name}`") for name in names if name not in (STEP, KEPT)}
    open_still = []
    for name, known in told.items():
        value = known.getField("value")
        made[name] = functions.when(_kept(name) & known.isNotNull(), value).otherwise(made[name])
        open_still.append(functions.when(_kept(name) & known.isNull(), functions.lit(name)))
    if open_still:
        made[KEPT] = functions.array_compact(functions.array(*open_still))
    if soft:
        mark, there = functions.col(MARK) & ~functions.col(DELETED), functions.col(_THERE)
        # What had left the condition before it was deleted is not there to be marked.
        made[DELETED] = made[DELETED] | (mark & functions.coalesce(~there, functions.lit(False)))
        made[MARKS] = mark & there.isNull()
    return [column.alias(name) for name, column in made.items()]


def _told(name: str, *, soft: bool) -> Any:
    """The value that the newest change says which says one; of a row that had gone before, null."""
    from pyspark.sql import functions

    says = ~functions.col(DELETED) & ~_kept(name)
    if soft:
        says = says & ~functions.col(MARK)
    value = functions.when(says, functions.struct(functions.col(f"`{name}`").alias("value")))
    nothing = functions.struct(functions.lit(None).alias("value"))
    return functions.first(value.when(_gone(), nothing), ignorenulls=True)


def _there() -> Any:
    """Whether the newest change that is no mark leaves a row; null where there is none."""
    from pyspark.sql import functions

    row = functions.when(~functions.col(DELETED) & ~functions.col(MARK), functions.lit(True))
    return functions.first(row.when(_gone(), functions.lit(False)), ignorenulls=True)


def _gone() -> Any:
    """Whether the row is gone. Not for what an update says of the old one: where the key is the same, more follows."""
    from pyspark.sql import functions

    return functions.col(DELETED) & (functions.col(STEP) != MOVED)


def _kept(name: str) -> Any:
    from pyspark.sql import functions

    return functions.coalesce(functions.array_contains(functions.col(KEPT), name), functions.lit(False))
