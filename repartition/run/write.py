"""Rows into a table, or a branch of it, with the frontier as a property of the commit."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from converter.parquet import columns
from repartition.changes.by_name import as_type
from repartition.changes.envelope import DELETED
from repartition.changes.latest import GONE_BY, KEY_MOVED, LATE, MARKS, TOLD_BY, latest_changes, ordered_by
from repartition.changes.select import KEPT, Changes
from repartition.errors import RepartitionError, java_causes
from repartition.limits import FEW_WORKED_OUT_BYTES_MAX
from repartition.run.frontier import FRONTIER, Frontier
from repartition.run.near import near
from repartition.run.target import literal
from repartition.spark.internals import worked_out_bytes
from repartition.spark.session import configured
from rsm_bridge.config.projections import ProjectionRule

_PROPERTY: Final = f"spark.sql.iceberg.snapshot-property.{FRONTIER}"
_BROADCAST: Final = "spark.sql.autoBroadcastJoinThreshold"
_CHANGES: Final = "tierberg_changes"
#: Of a change, beside the columns of the table.
_BESIDE: Final = (DELETED, KEPT, MARKS, TOLD_BY, GONE_BY, LATE)
#: In Spark's error where the memory of driver or executors is too small for what is sent.
_TOO_LARGE: Final = "Not enough memory to build and broadcast"


def conformed(session: Any, rows: Any, table: str) -> Any:
    """The rows, for a write to `table`: what it has and they have not is null, columns that it has not are left out.

    A column whose type is the table's goes as it is.

    Args:
        session: Spark's.
        rows: a frame; DELETED and KEPT stay.
        table: or a branch of it, quoted, already brought to the rows' columns.
    """
    from pyspark.sql import functions

    given = {f.name: f.dataType for f in rows.schema.fields}
    told = []
    for field in session.table(table).schema.fields:
        column = functions.col(f"`{field.name}`")
        made = as_type(column, given.get(field.name), field.dataType, lossy=False)
        told.append(column if made is column else made.alias(field.name))
    return rows.select(*told, *(functions.col(name) for name in (DELETED, KEPT) if name in given))


def append(rows: Any, branch: str, after: Frontier, options: Mapping[str, str] | None = None) -> None:
    """Adds the rows, which have all columns of the table. Commits when there are none, too."""
    said = {f"snapshot-property.{FRONTIER}": after.encode(), **(options or {})}
    rows.writeTo(branch).options(**said).append()


def upsert(
    session: Any,
    made: Changes,
    branch: str,
    after: Frontier,
    rule: ProjectionRule,
    *,
    catalog: str,
    few: bool,
    again: bool = False,
    late: str | None = None,
) -> None:
    """Applies the latest change of each key.

    Args:
        session: Spark's.
        made: the changes; rows with all columns of the table.
        branch: of the projection's table.
        after: the frontier then.
        rule: the projection's.
        catalog: the table's, as Spark calls it, quoted.
        few: the changes may fit into the memory of each executor, so that the table's rows need not be sorted by key to
            find those that change. They are worked out once and measured then. In up to two commits.
        again: these are all changes of their keys from some place in the order on, and the table has some of them: what
            they leave out they tell each other, and a row that the last of them has made is made anew.
        late: the same, of the keys alone that have a change for which this condition holds.

    Raises:
        RepartitionError: `key_moved`.
    """
    # Of one partition the changes of a run come after all that the table has.
    between = rule.key_order != "partition" and not again
    latest = latest_changes(made.rows, rule, made.may_keep, between=between, late=late)
    merge = _Merge(session=session, branch=branch, rule=rule, may_keep=made.may_keep, again=again, between=between)
    with configured(session, _PROPERTY, after.encode()), _moved_keys():
        if not few:
            merge.run(latest, few=False)
            return
        latest = latest.persist()
        try:
            _merge_few(merge, latest, after, catalog)
        finally:
            latest.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """Spark's session and the branch; the rest as :func:`merge_statement` takes it."""

    session: Any
    branch: str
    rule: ProjectionRule
    may_keep: Sequence[str]
    near: Sequence[str] = ()
    again: bool = False
    between: bool = False

    def run(self, latest: Any, *, few: bool) -> None:
        session, names = self.session, [name for name in latest.columns if name not in _BESIDE]
        latest.createOrReplaceTempView(_CHANGES)
        # A hint that the small side goes to the other's tasks gets lost on the way to a MERGE.
        sent = configured(session, _BROADCAST, str(FEW_WORKED_OUT_BYTES_MAX)) if few else contextlib.nullcontext()
        try:
            with sent:
                session.sql(
                    merge_statement(
                        self.branch,
                        _CHANGES,
                        self.rule,
                        names,
                        insert=not few,
                        may_keep=self.may_keep,
                        near=self.near,
                        again=self.again,
                        between=self.between,
                    )
                )
        finally:
            session.catalog.dropTempView(_CHANGES)


def _merge_few(merge: _Merge, latest: Any, after: Frontier, catalog: str) -> None:
    """By sending the changes to the table's rows, where they are as small as they looked: text packs well."""
    size = worked_out_bytes(latest)
    if merge.may_keep and latest.where(_keeps(merge)).isEmpty():
        merge = replace(merge, may_keep=())  # so that no other columns of the table's rows have to be read
    merge = replace(merge, near=near(latest, merge.rule, catalog))
    if size <= FEW_WORKED_OUT_BYTES_MAX:
        try:
            _insert_missing(merge, latest, after)
            merge.run(latest, few=True)
        except Exception as error:
            if not any(_TOO_LARGE in text for _, text in java_causes(error)):
                raise
        else:
            return
    # What came by the first try stays as it is: every clause asks for a later record.
    merge.run(latest, few=False)


def _keeps(merge: _Merge) -> Any:
    """Whether a change may leave something as the table's row has it."""
    from pyspark.sql import functions

    told = [functions.col(f"{TOLD_BY}.`{name}`").isNotNull() for name in merge.may_keep] if merge.between else []
    return functools.reduce(operator.or_, told, functions.size(KEPT) > 0)


def _insert_missing(merge: _Merge, latest: Any, after: Frontier) -> None:
    """Adds rows of keys that the table has not. What it has is left to the MERGE, which is an inner join then."""
    from pyspark.sql import functions

    session, key = merge.session, list(merge.rule.key)
    quoted_key = [f"`{name}`" for name in key]
    there = session.table(merge.branch).alias("t")
    for condition in merge.near:
        there = there.where(condition)
    there = there.select(*quoted_key)
    known = there.join(functions.broadcast(latest.select(*quoted_key)), key, "semi")
    rows = latest.where(_makes_a_row(merge.rule)).drop(*_BESIDE)
    fresh = rows.join(functions.broadcast(known), key, "anti")
    # Asked twice; few rows in the many partitions of a shuffle would cost more than what is in them.
    fresh = fresh.coalesce(session.sparkContext.defaultParallelism).persist()
    try:
        if not fresh.isEmpty():
            append(fresh, merge.branch, after)
    finally:
        fresh.unpersist()


def _makes_a_row(rule: ProjectionRule, source: str = "") -> str:
    """The condition for a change whose key the table has not to become a row of it."""
    marks = f" AND NOT {source}`{MARKS}`" if rule.soft_deletes else ""
    return f"NOT {source}`{DELETED}`{marks}"


def made_from(first_offsets: Mapping[int, int]) -> str:
    """The condition for what was made of records from these offsets on, by Kafka partition."""
    return " OR ".join(
        f"({columns.PARTITION} = {partition} AND {columns.OFFSET} >= {offset})"
        for partition, offset in sorted(first_offsets.items())
    )


def cut(session: Any, branch: str, condition: str) -> None:
    """Deletes the rows for which a condition holds."""
    session.sql(f"DELETE FROM {branch} WHERE {condition}")


@contextlib.contextmanager
def _moved_keys() -> Iterator[None]:
    """The error that a statement of ours raises, as an error of ours."""
    try:
        yield
    except Exception as error:
        # With a key: the statement itself is in errors that are about other things.
        at = str(error).find(f'{KEY_MOVED}: {{"')
        if at < 0:
            raise
        text = str(error)[at:].partition("\n")[0]
        raise RepartitionError(
            "key_moved", f"{text}. Take a key that stays in its partition, or set key_order: timestamp"
        ) from error


def _later(rule: ProjectionRule, *, again: bool) -> str:
    """The condition for a change `s` to be later than the row `t` of its key; null is earlier than all else."""
    than = ">=" if again else ">"
    if rule.key_order == "partition":
        return f"s.{columns.OFFSET} {than} coalesce(t.{columns.OFFSET}, -1)"  # null: from before it was adopted
    return f"({_listed(ordered_by(rule), 's.')}) {than} {_place(rule)}"


def _place(rule: ProjectionRule) -> str:
    """The place of the row `t` in the order."""
    return f"({_listed(ordered_by(rule), 't.')})"


def merge_statement(
    target: str,
    source: str,
    rule: ProjectionRule,
    names: Sequence[str],
    *,
    insert: bool,
    may_keep: Sequence[str] = (),
    near: Sequence[str] = (),
    again: bool = False,
    between: bool = False,
) -> str:
    """Applies the latest change of each key.

    Every clause asks for a later record, so a change that comes again does nothing; with `again` it does the same.

    Args:
        target: the table, or a branch of it, quoted.
        source: a view with the table's columns and DELETED, at most one row per key, no key null; with KEPT if
            `may_keep` has any, with MARKS under `soft_deletes`.
        rule: the projection's.
        names: all columns of the table: one that is not assigned would keep what an older record said.
        insert: keys that the table has not get a row; False: nothing happens to them.
        may_keep: columns that stay as they are where KEPT names them.
        near: conditions that hold for all rows of the table with such keys.
        again: a row that such a change has made is made anew.
        between: the source has LATE, TOLD_BY with `may_keep`, and GONE_BY under `soft_deletes`. What `again` says goes
            for the keys that are late.
    """
    on = " AND ".join([*(f"t.`{name}` = s.`{name}`" for name in rule.key), *near])
    later, gone = _later(rule, again=again), f"s.`{DELETED}`"
    if between:
        later = f"({later} OR s.`{LATE}` AND {_later(rule, again=True)})"
    if between and rule.soft_deletes:
        gone = f"({gone} OR s.`{GONE_BY}` >= {_place(rule)} OR s.`{LATE}` AND s.`{GONE_BY}` IS NOT NULL)"
    given = {name: f"s.`{name}`" for name in names}
    for name in may_keep:
        stays = f"array_contains(s.`{KEPT}`, {literal(name)})"
        if between:
            stays += f" OR NOT s.`{LATE}` AND {_place(rule)} > s.`{TOLD_BY}`.`{name}`"
        given[name] = f"CASE WHEN {stays} THEN t.`{name}` ELSE s.`{name}` END"
    clauses = [
        f"WHEN MATCHED AND {later} AND {gone} THEN DELETE",
        f"WHEN MATCHED AND {later} THEN UPDATE SET {_assigned(given)}",
    ]
    if insert:
        fresh = f"INSERT ({_listed(names)}) VALUES ({_listed(names, 's.')})"
        clauses.append(f"WHEN NOT MATCHED AND {_makes_a_row(rule, 's.')} THEN {fresh}")
    if rule.key_order == "partition":
        refused = f"CAST(raise_error(concat('{KEY_MOVED}: ', to_json(struct({_listed(rule.key, 's.')})))) AS BIGINT)"
        met = f"WHEN MATCHED AND t.{columns.PARTITION} <> s.{columns.PARTITION}"
        # Every column is assigned, so that of the table's rows no other column has to be read.
        clauses.insert(0, f"{met} THEN UPDATE SET {_assigned({**given, columns.OFFSET: refused})}")
    return f"MERGE INTO {target} t USING {source} s ON {on}\n" + "\n".join(clauses)


def _assigned(values: Mapping[str, str]) -> str:
    return ", ".join(f"t.`{name}` = {value}" for name, value in values.items())


def _listed(names: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}`{name}`" for name in names)
