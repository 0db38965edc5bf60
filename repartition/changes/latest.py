"""The last change of each key among those of one run, with what it keeps of those before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from converter.parquet import columns
from repartition.changes.envelope import DELETED
from repartition.changes.select import IDENTITY, KEPT, MARK
from rsm_bridge.config.projections import ProjectionRule

#: How the error for a key that is met in another partition begins.
KEY_MOVED: Final = "key_order is partition, and this key is in several partitions"
#: With `soft_deletes`: the change marks a row of the projection's table, and makes none where that has none.
MARKS: Final = "__tierberg_marks"
#: By column, and for the row itself, the place in the order of the change that told what another one leaves out. A row
#: of the projection's table that is later than that knows better.
TOLD_BY: Final = "__tierberg_told_by"
GONE_BY: Final = "__tierberg_gone_by"
#: Some change of the key comes late: all of them are there, and what the row says may be without it.
LATE: Final = "__tierberg_late"
_RANK: Final = "__tierberg_rank"
_THERE: Final = "__tierberg_there"
_TOLD: Final = "__tierberg_told_"


def ordered_by(rule: ProjectionRule) -> tuple[str, ...]:
    """Columns by which a change of a key is later than another, compared one after the other; null comes first."""
    first = (columns.TIMESTAMP,) if rule.key_order == "timestamp" else rule.source_order
    return (*first, *IDENTITY)


def latest_changes(
    rows: Any, rule: ProjectionRule, may_keep: Sequence[str], *, between: bool = False, late: str | None = None
) -> Any:
    """At most one row per key.

    KEPT has columns whose value only the projection's table can tell; it is there if `may_keep` has any. MARKS is there
    under `soft_deletes`. With `between` so is LATE, and beside the others TOLD_BY and GONE_BY, null where none is told.

    Args:
        rows: of the changes, with DELETED and KEPT.
        rule: the projection's.
        may_keep: columns that KEPT may have.
        between: the table's row of a key may be later than some of these changes, and not than others.
        late: the condition for a change that comes late; None: none does.
    """
    from pyspark.sql import Window, functions

    by_key = Window.partitionBy(*(functions.col(f"`{name}`") for name in rule.key))
    partition, offset = IDENTITY
    order = [functions.col(f"`{name}`") for name in ordered_by(rule)]
    newest_first = by_key.orderBy(*(item.desc() for item in order))
    # The whole of a key for each of its rows, worked out once per key: only its first row stays.
    within = newest_first.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    at = functions.struct(*order).alias("at")
    place = (at,) if between else ()
    told = [_told(name, place, soft=rule.soft_deletes).over(within).alias(f"{_TOLD}{name}") for name in may_keep]
    there = [_there(place).over(within).alias(_THERE)] if rule.soft_deletes else []
    numbered = rows.select("*", functions.row_number().over(newest_first).alias(_RANK), *told, *there)
    if rule.key_order == "partition":
        several = functions.min(partition).over(by_key) != functions.max(partition).over(by_key)
        named = functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in rule.key)))
        text = functions.concat(functions.lit(f"{KEY_MOVED}: "), named)
        checked = functions.when(several, functions.raise_error(text).cast("long")).otherwise(functions.col(offset))
        numbered = numbered.withColumn(offset, checked)
    if between:
        is_late = functions.lit(False) if late is None else functions.max(functions.expr(late)).over(by_key)
        numbered = numbered.withColumn(LATE, is_late)
    last = numbered.where(f"{_RANK} = 1")
    return last.select(*_settled(rows.columns, may_keep, soft=rule.soft_deletes, between=between))


def _settled(names: Sequence[str], may_keep: Sequence[str], *, soft: bool, between: bool) -> list[Any]:
    """Columns of the last change, completed from those before it."""
    from pyspark.sql import functions

    told = {name: functions.col(f"`{_TOLD}{name}`") for name in may_keep}
    made = {name: functions.col(f"`{name}`") for name in names if name != KEPT}
    open_still, told_by = [], []
    for name, known in told.items():
        completed = _kept(name) & known.isNotNull()
        made[name] = functions.when(completed, known.getField("value")).otherwise(made[name])
        open_still.append(functions.when(_kept(name) & known.isNull(), functions.lit(name)))
        if between:
            told_by.append(functions.when(completed, known.getField("at")).alias(name))
    if open_still:
        made[KEPT] = functions.array_compact(functions.array(*open_still))
    if between:
        made[LATE] = functions.col(LATE)
    if told_by:
        made[TOLD_BY] = functions.struct(*told_by)
    if soft:
        known = functions.col(_THERE)
        mark, there = functions.col(MARK) & ~functions.col(DELETED), known.getField("there")
        # What had left the condition before it was deleted is not there to be marked.
        left = mark & functions.coalesce(~there, functions.lit(False))
        made[MARKS] = mark & there.isNull()
        if between:
            made[GONE_BY] = functions.when(left, known.getField("at"))
            made[MARKS] = made[MARKS] | left
        else:
            made[DELETED] = made[DELETED] | left
    return [column.alias(name) for name, column in made.items()]


def _told(name: str, place: Sequence[Any], *, soft: bool) -> Any:
    """The value of the newest change that says one, and that one's `place`; of a row that had gone before, null."""
    from pyspark.sql import functions

    says = ~functions.col(DELETED) & ~_kept(name)
    if soft:
        says = says & ~functions.col(MARK)
    value = functions.when(says, functions.struct(functions.col(f"`{name}`").alias("value"), *place))
    nothing = functions.struct(functions.lit(None).alias("value"), *place)
    return functions.first(value.when(functions.col(DELETED), nothing), ignorenulls=True)


def _there(place: Sequence[Any]) -> Any:
    """Whether the newest change that is no mark leaves a row, and that one's `place`; null where there is none."""
    from pyspark.sql import functions

    there, gone = (functions.struct(functions.lit(known).alias("there"), *place) for known in (True, False))
    row = functions.when(~functions.col(DELETED) & ~functions.col(MARK), there)
    return functions.first(row.when(functions.col(DELETED), gone), ignorenulls=True)


def _kept(name: str) -> Any:
    from pyspark.sql import functions

    return functions.coalesce(functions.array_contains(functions.col(KEPT), name), functions.lit(False))
