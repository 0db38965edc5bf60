"""Rows into a table, or a branch of it, with the frontier as a property of the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError, java_causes
from repartition.limits import FEW_WORKED_OUT_BYTES_MAX
from repartition.run.changes import IDENTITY
from repartition.run.envelope import DELETED, STEP
from repartition.run.frontier import FRONTIER, Frontier
from repartition.spark.internals import worked_out_bytes
from repartition.spark.session import configured
from rsm_bridge.config.projections import KeyOrder, ProjectionRule

_PROPERTY: Final = f"spark.sql.iceberg.snapshot-property.{FRONTIER}"
_BROADCAST: Final = "spark.sql.autoBroadcastJoinThreshold"
_CHANGES: Final = "tierberg_changes"
_RANK: Final = "__tierberg_rank"
#: In Spark's error where the memory of driver or executors is too small for what is sent.
_TOO_LARGE: Final = "Not enough memory to build and broadcast"


def append(rows: Any, branch: str, after: Frontier, options: Mapping[str, str] | None = None) -> None:
    """Adds the rows, which have all columns of the table. Commits when there are none, too."""
    said = {f"snapshot-property.{FRONTIER}": after.encode(), **(options or {})}
    rows.writeTo(branch).options(**said).append()


def upsert(session: Any, rows: Any, branch: str, after: Frontier, rule: ProjectionRule, *, few: bool) -> None:
    """Applies the latest change of each key.

    Args:
        session: Spark's.
        rows: of the changes; all columns of the table, DELETED and STEP.
        branch: of the projection's table.
        after: the frontier then.
        rule: the projection's.
        few: the changes may fit into the memory of each executor, so that the table's rows need not be sorted by key to
            find those that change. They are worked out once and measured then. In up to two commits.

    Raises:
        RepartitionError: `key_moved`.
    """
    latest = _latest(rows, rule)
    with configured(session, _PROPERTY, after.encode()), _moved_keys():
        if not few:
            _merge(session, latest, branch, rule, few=False)
            return
        latest = latest.persist()
        try:
            _merge_few(session, latest, branch, after, rule)
        finally:
            latest.unpersist()


def _merge_few(session: Any, latest: Any, branch: str, after: Frontier, rule: ProjectionRule) -> None:
    """By sending the changes to the table's rows, where they are as small as they looked: text packs well."""
    if worked_out_bytes(latest) <= FEW_WORKED_OUT_BYTES_MAX:
        try:
            _insert_missing(session, latest, branch, after, rule)
            _merge(session, latest, branch, rule, few=True)
        except Exception as error:
            if not any(_TOO_LARGE in text for _, text in java_causes(error)):
                raise
        else:
            return
    # What came by the first try stays as it is: every clause asks for a later record.
    _merge(session, latest, branch, rule, few=False)


def _insert_missing(session: Any, latest: Any, branch: str, after: Frontier, rule: ProjectionRule) -> None:
    """Adds rows of keys that the table has not. What it has is left to the MERGE, which is an inner join then."""
    from pyspark.sql import functions

    key = list(rule.key)
    quoted_key = [f"`{name}`" for name in key]
    known = session.table(branch).select(*quoted_key).join(functions.broadcast(latest.select(*quoted_key)), key, "semi")
    fresh = latest.where(~functions.col(DELETED)).join(functions.broadcast(known), key, "anti").drop(DELETED)
    # Asked twice; few rows in the many partitions of a shuffle would cost more than what is in them.
    fresh = fresh.coalesce(session.sparkContext.defaultParallelism).persist()
    try:
        if not fresh.isEmpty():
            append(fresh, branch, after)
    finally:
        fresh.unpersist()


def _merge(session: Any, latest: Any, branch: str, rule: ProjectionRule, *, few: bool) -> None:
    names = [name for name in latest.columns if name != DELETED]
    latest.createOrReplaceTempView(_CHANGES)
    # A hint that the small side goes to the other's tasks gets lost on the way to a MERGE.
    sent = configured(session, _BROADCAST, str(FEW_WORKED_OUT_BYTES_MAX)) if few else contextlib.nullcontext()
    try:
        with sent:
            session.sql(merge_statement(branch, _CHANGES, rule.key, names, rule.key_order, insert=not few))
    finally:
        session.catalog.dropTempView(_CHANGES)


def cut(session: Any, branch: str, first_offsets: Mapping[int, int]) -> None:
    """Deletes what was made of records from these offsets on, by Kafka partition."""
    conditions = [
        f"({columns.PARTITION} = {partition} AND {columns.OFFSET} >= {offset})"
        for partition, offset in sorted(first_offsets.items())
    ]
    session.sql(f"DELETE FROM {branch} WHERE {' OR '.join(conditions)}")


def _latest(rows: Any, rule: ProjectionRule) -> Any:
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


#: How the error for a key that is met in another partition begins.
KEY_MOVED: Final = "key_order is partition, and this key is in several partitions"
_LATER: Final = {
    "partition": f"s.{columns.OFFSET} > t.{columns.OFFSET}",
    "timestamp": (
        f"(coalesce(s.{columns.TIMESTAMP}, timestamp'0001-01-01'), s.{columns.PARTITION}, s.{columns.OFFSET}) > "
        f"(coalesce(t.{columns.TIMESTAMP}, timestamp'0001-01-01'), t.{columns.PARTITION}, t.{columns.OFFSET})"
    ),
}


def merge_statement(
    target: str, source: str, key: Sequence[str], names: Sequence[str], order: KeyOrder, *, insert: bool
) -> str:
    """Applies the latest change of each key.

    Every clause asks for a later record, so a change that comes again does nothing.

    Args:
        target: the table, or a branch of it, quoted.
        source: a view with the table's columns and DELETED, at most one row per key, no key null.
        key: columns of the key.
        names: all columns of the table: one that is not assigned would keep what an older record said.
        order: which of two records is later.
        insert: keys that the table has not get a row; False: nothing happens to them.
    """
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in key)
    given = {name: f"s.`{name}`" for name in names}
    clauses = [
        f"WHEN MATCHED AND {_LATER[order]} AND s.`{DELETED}` THEN DELETE",
        f"WHEN MATCHED AND {_LATER[order]} THEN UPDATE SET {_assigned(given)}",
    ]
    if insert:
        fresh = f"INSERT ({_listed(names)}) VALUES ({_listed(names, 's.')})"
        clauses.append(f"WHEN NOT MATCHED AND NOT s.`{DELETED}` THEN {fresh}")
    if order == "partition":
        refused = f"CAST(raise_error(concat('{KEY_MOVED}: ', to_json(struct({_listed(key, 's.')})))) AS BIGINT)"
        met = f"WHEN MATCHED AND t.{columns.PARTITION} <> s.{columns.PARTITION}"
        # Every column is assigned, so that of the table's rows no other column has to be read.
        clauses.insert(0, f"{met} THEN UPDATE SET {_assigned({**given, columns.OFFSET: refused})}")
    return f"MERGE INTO {target} t USING {source} s ON {on}\n" + "\n".join(clauses)


def _assigned(values: Mapping[str, str]) -> str:
    return ", ".join(f"t.`{name}` = {value}" for name, value in values.items())


def _listed(names: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}`{name}`" for name in names)
