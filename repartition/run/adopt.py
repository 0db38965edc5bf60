"""A table that the user made becomes a projection, if the rule says `adopt` and nothing of it is lost by that.

Its rows count as older than every record of the topic: a record whose key has a row replaces it, the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from iceberg_catalog.tables.names import Owner
from repartition.changes.by_name import left_out_within
from repartition.changes.select import IDENTITY
from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier
from repartition.run.layout_check import require_layout
from repartition.run.table import evolve_table, metadata_columns, partition_terms, rule_stamp, sort_terms, table_stamped
from repartition.run.target import owner_stamp, quoted, staged
from repartition.run.write import append
from rsm_bridge.config.layout_terms import COLUMN_PATH, partition_term, row_order
from rsm_bridge.config.projections import ProjectionRule

_OURS: Final = "tierberg."
#: Properties of a table that cannot live as a projection: name, value, why.
_BARRED: Final = (
    ("write.spark.accept-any-schema", "true", "Spark fails each MERGE then; set it to false"),
    (
        "gc.enabled",
        "false",
        "its files may be another table's, and nothing ever expires; rewrite it, and set it to true",
    ),
)


def of_nobody(catalog: Catalog, name: tuple[str, ...]) -> Table | None:
    """The table, if it is there and is neither a topic's nor a projection."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return None
    return None if any(key.startswith(_OURS) for key in table.properties) else table


def adopt(session: Any, catalog: str, table: Table, frame: Any, rule: ProjectionRule, owner: Owner) -> None:
    """Makes the table a projection that has read nothing. What dies in between is done again.

    Args:
        session: Spark's.
        catalog: the table's, there.
        table: of nobody.
        frame: has the columns that the rule gives.
        rule: of `mode: upsert`.
        owner: of the topic.

    Raises:
        RepartitionError: `bad_rule` with all that speaks against it; `raced` if somebody wrote to it meanwhile.
    """
    from pyspark.sql.types import StructType

    name = table.name()
    full = quoted(catalog, *name)
    there = session.table(full).schema
    refuse_adoption(table, frame.columns, rule, left_out_within(frame.schema, there))
    # Before a column comes: as the table will be.
    both = StructType([*there.fields, *(field for field in frame.schema.fields if field.name not in there.names)])
    require_layout(both, rule)
    _refuse_rows(session, full, table, rule)
    evolve_table(session, catalog, name, table, frame, rule)
    if table.metadata.current_snapshot_id is not None:
        with staged(session, catalog, name, table.metadata.current_snapshot_id) as (branch, publish):
            append(session.table(full).where("false"), branch, Frontier(owner.topic_id))
            publish()
    # Last: from now on the table has to say how far it has read.
    table_stamped(session, full, owner_stamp(owner, rule.mode) | rule_stamp(rule))


def refuse_adoption(table: Table, given: Iterable[str], rule: ProjectionRule, lost_within: Sequence[str] = ()) -> None:
    """Does nothing where runs by the rule leave the table as its owner knows it.

    Args:
        table: of nobody.
        given: columns that the rule gives.
        rule: of `mode: upsert`.
        lost_within: what is within columns of the table and not of the same that the rule gives.

    Raises:
        RepartitionError: `bad_rule`: names all that is in the way, and what to do about it.
    """
    schema, given = table.schema(), list(given)
    there = {field.name: field for field in schema.fields}
    lower = {name.lower(): name for name in given}
    said = []
    missing = [name for name in rule.key if name not in there]
    if missing:
        said.append(f"it has no column {', '.join(missing)}, which `key` names")
    lost = [*(name for name in there if name not in given and name.lower() not in lower), *lost_within]
    if lost:
        said.append(f"`select` gives no {', '.join(lost)}, which would be null in every row that changes")
    spelt = [f"{name} as {lower[name.lower()]}" for name in there if name not in given and name.lower() in lower]
    if spelt:
        said.append(f"`select` gives {', '.join(spelt)}; spell it as the table does")
    hidden = metadata_columns(table)
    if hidden:
        said.append(f"it has {', '.join(hidden)}, as Iceberg calls a column of its own; rename it")
    required = [name for name, field in there.items() if field.required]
    if required:
        said.append(f"{', '.join(required)} may not be null there, and a record may say nothing of it")
    said += _layout_faults(table, rule)
    if table.format_version > rule.format_version:
        said.append(f"it has format version {table.format_version}; say that as `format_version`")
    said += [f"its property {name} is {value}: {why}" for name, value, why in _BARRED if _is_set(table, name, value)]
    if said:
        raise RepartitionError("bad_rule", f"table {'.'.join(table.name())} cannot be adopted: {'; '.join(said)}")


def _layout_faults(table: Table, rule: ProjectionRule) -> list[str]:
    said, schema = [], table.schema()
    ids = [*(field.source_id for field in table.spec().fields), *(f.source_id for f in table.sort_order().fields)]
    used = {schema.find_column_name(number) or "" for number in ids}
    unsayable = sorted(name for name in used if not re.fullmatch(COLUMN_PATH, name))
    if unsayable:
        return [f"its layout is by {', '.join(unsayable)}, which no rule can name; rename the column"]
    terms = partition_terms(table)
    if sorted(term.rule() for term in terms) != sorted(partition_term(text).rule() for text in rule.partition_by):
        said.append(f"it is partitioned by [{', '.join(term.rule() for term in terms)}]; say that as `partition_by`")
    if any(not isinstance(field.transform, IdentityTransform) for field in table.sort_order().fields):
        said.append("its sort order has transforms, which `sort_by` cannot say")
    elif sort_terms(table) != [*row_order(rule.sort_by).terms]:
        order = ", ".join(term.sql().lower() for term in sort_terms(table))
        said.append(f"its rows are sorted by [{order}]; say that as `sort_by`")
    return said


def _is_set(table: Table, name: str, value: str) -> bool:
    return table.properties.get(name, "").strip().lower() == value


def _refuse_rows(session: Any, full: str, table: Table, rule: ProjectionRule) -> None:
    """Those of one key, and those that say a place in a log: of whatever log, it would count as this topic's."""
    for place in IDENTITY:
        if place not in session.table(full).columns:
            continue
        if session.sql(f"SELECT {place} FROM {full} WHERE {place} IS NOT NULL LIMIT 1").collect():
            said = f"its rows have a {place} already, which would count as this topic's; rename it"
            raise RepartitionError("bad_rule", f"table {'.'.join(table.name())} cannot be adopted: {said}")
    key = ", ".join(f"`{name}`" for name in rule.key)
    asked = f"SELECT to_json(struct({key})) FROM {full} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
    found = session.sql(asked).collect()
    if found:
        said = f"several of its rows have the key {found[0][0]}, and a projection has one"
        raise RepartitionError("bad_rule", f"table {'.'.join(table.name())} cannot be adopted: {said}")
