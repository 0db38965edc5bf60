"""What the table of a projection looks like: made from the rule, and adapted when rule or source have changed.

Columns only ever come or get wider (Iceberg spec, "Schema evolution"); what the source or the rule no longer gives
stays and is null from then on. Partition fields and sort order change in place, for files written from then on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyiceberg.table import Table

from iceberg_catalog.evolve.names import METADATA_COLUMNS
from repartition.errors import RepartitionError, lost_race
from repartition.run.layout_check import is_floating, require_layout
from repartition.run.target import literal, quoted
from repartition.spark.internals import nullable_schema, union_columns
from rsm_bridge.config.layout_terms import PartitionTerm, SortTerm, partition_term, row_order
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.limits import MIB


def table_properties(rule: ProjectionRule, schema: Any) -> dict[str, str]:
    """Of the projection's table, beside its owner stamp. `schema`: Spark's, of its rows."""
    common = {
        "format-version": str(rule.format_version),
        "write.target-file-size-bytes": str(rule.target_file_mib * MIB),
        "write.distribution-mode": "hash" if rule.partition_by else "none",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
        "write.parquet.compression-codec": "zstd",
        "write.spark.accept-any-schema": "false",  # with it each MERGE fails
    }
    if any(is_floating(schema, partition_term(text)) for text in rule.partition_by):
        common["write.spark.fanout.enabled"] = "true"  # rows of −0.0 and 0.0 come mixed, as equal to Spark
    return common | {f"write.{verb}.mode": rule.row_writes for verb in ("merge", "update", "delete")}


def create_table(
    session: Any, catalog: str, name: tuple[str, ...], frame: Any, rule: ProjectionRule, stamp: dict[str, str]
) -> None:
    """Makes the table for the columns of `frame`; somebody else who does the same is fine.

    Raises:
        RepartitionError: `bad_rule` if no table with these columns can have the rule's layout.
    """
    # Java's side quotes the names of nested fields, Python's does not.
    require_layout(frame.schema, rule)
    fields = nullable_schema(frame).fields()
    columns = ", ".join(f"{quoted(field.name())} {field.dataType().sql()}" for field in fields)
    terms = ", ".join(partition_term(text).ddl() for text in rule.partition_by)
    for depth in range(1, len(name)):
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(catalog, *name[:depth])}")
    properties = _listed({**table_properties(rule, frame.schema), **stamp})
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted(catalog, *name)} ({columns}) USING iceberg"
        f"{f' PARTITIONED BY ({terms})' if terms else ''} TBLPROPERTIES ({properties})"
    )
    if rule.sort_by:
        session.sql(f"ALTER TABLE {quoted(catalog, *name)} {_order(rule)}")


def evolve_table(
    session: Any, catalog: str, name: tuple[str, ...], table: Table, frame: Any, rule: ProjectionRule
) -> None:
    """Brings columns, partition fields, sort order and properties to what they should be.

    Raises:
        RepartitionError: `bad_rule` if a column's type cannot become what the rule gives now, or carry its layout.
    """
    _evolve_columns(session, catalog, name, frame)
    full = quoted(catalog, *name)
    schema = session.table(full).schema  # has columns that the rule gives no more, and may be laid out by them still
    require_layout(schema, rule)
    for statement in partition_changes(partition_terms(table), [partition_term(text) for text in rule.partition_by]):
        session.sql(f"ALTER TABLE {full} {statement}")
    if sort_terms(table) != [*row_order(rule.sort_by).terms]:
        session.sql(f"ALTER TABLE {full} {_order(rule)}")
    stale = {key: value for key, value in table_properties(rule, schema).items() if _stale(table, key, value)}
    if stale:
        table_stamped(session, full, stale)


def partition_changes(now: Sequence[PartitionTerm], wanted: Sequence[PartitionTerm]) -> list[str]:
    """`ALTER TABLE` clauses from one spec to another; the order of fields alone is no difference."""
    dropped = [f"DROP PARTITION FIELD {term.ddl()}" for term in now if term not in wanted]
    return [*dropped, *(f"ADD PARTITION FIELD {term.ddl()}" for term in wanted if term not in now)]


def partition_terms(table: Table) -> list[PartitionTerm]:
    """The table's present spec."""
    schema = table.schema()
    return [
        PartitionTerm(schema.find_column_name(field.source_id) or "", str(field.transform))
        for field in table.spec().fields
        if str(field.transform) != "void"
    ]


def sort_terms(table: Table) -> list[SortTerm]:
    """The table's present sort order, as far as the rule could have made it."""
    schema = table.schema()
    return [
        SortTerm(
            schema.find_column_name(field.source_id) or "",
            descending="DESC" in str(field.direction),
            nulls_first="FIRST" in str(field.null_order).upper(),
        )
        for field in table.sort_order().fields
    ]


def _evolve_columns(session: Any, catalog: str, name: tuple[str, ...], frame: Any) -> None:
    """By Iceberg's own union of schemas."""
    try:
        union_columns(session, quoted(catalog, *name), frame)
    except Exception as error:
        if lost_race(error):
            raise
        raise RepartitionError(
            "bad_rule",
            f"table {'.'.join(name)} cannot take what its rule gives now: {error}. Give the column another name in "
            "`select`, or choose another `table`",
        ) from error


def table_stamped(session: Any, full: str, properties: Mapping[str, str]) -> None:
    """Sets properties. `full`: the table, quoted."""
    session.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ({_listed(properties)})")


def _order(rule: ProjectionRule) -> str:
    terms = ", ".join(term.ddl() for term in row_order(rule.sort_by).terms)
    spread = "DISTRIBUTED BY PARTITION " if rule.partition_by else ""
    return f"WRITE {spread}LOCALLY ORDERED BY {terms}" if terms else f"WRITE {spread}UNORDERED"


def _stale(table: Table, key: str, value: str) -> bool:
    if key == "format-version":
        return table.format_version < int(value)
    return table.properties.get(key) != value


def _listed(properties: Mapping[str, str]) -> str:
    """As `TBLPROPERTIES` takes them."""
    return ", ".join(f"'{key}' = {literal(value)}" for key, value in properties.items())


PROJECTION_KEY: Final = "tierberg.copy.key"  # of upsert: the columns' names, sorted, as a JSON list


PROJECTION_ITEMS: Final = "tierberg.copy.explode"  # the column of whose items there is one row each


def rule_stamp(rule: ProjectionRule) -> dict[str, str]:
    """Table properties that say of what there is one row each; none where every record has its own."""
    key = {PROJECTION_KEY: json.dumps(sorted(rule.key), ensure_ascii=False)} if rule.key else {}
    return key | ({PROJECTION_ITEMS: rule.explode} if rule.explode else {})


def refuse_other_rule(table: Table, rule: ProjectionRule) -> None:
    """Does nothing where the table can be brought to the rule.

    Raises:
        RepartitionError: `bad_rule` if its rows are one per other columns than the rule's `key`, or one per item of
            another column than the rule's `explode`, its format version is above the rule's, or Spark cannot read it
            for the name of a column.
    """
    name, anew = ".".join(table.name()), "choose another `table`, or drop this one to have it filled anew"
    found, wanted = table.properties.get(PROJECTION_KEY), rule_stamp(rule).get(PROJECTION_KEY)
    if found != wanted:
        said = f"table {name} has one row per {found or 'unknown key'}, and the rule's `key` is now {wanted or 'none'}"
        raise RepartitionError("bad_rule", f"{said}. Set it back, {anew}")
    items = table.properties.get(PROJECTION_ITEMS)
    if items != rule.explode:
        said = f"table {name} has a row for each {f'item of {items}' if items else 'record'}, and the rule's `explode` "
        raise RepartitionError("bad_rule", f"{said}is now {rule.explode or 'none'}. Set it back, {anew}")
    if table.format_version > rule.format_version:
        version = table.format_version
        said = f"table {name} has format version {version}, above the rule's {rule.format_version}, and cannot go back"
        raise RepartitionError("bad_rule", f"{said}. Set `format_version: {version}`, {anew}")
    hidden = metadata_columns(table)
    if hidden:
        said = f"table {name} has {', '.join(hidden)}, as Iceberg calls a column of its own, and Spark cannot read it"
        cure = "`, `".join(f"ALTER TABLE {name} DROP COLUMN {column}" for column in hidden)
        raise RepartitionError("bad_rule", f"{said}: `{cure}`; what events bring of the name is called otherwise now")


def metadata_columns(table: Table) -> list[str]:
    """Columns of a table that keep Spark from reading it."""
    return [field.name for field in table.schema().fields if field.name in METADATA_COLUMNS]
