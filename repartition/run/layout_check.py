"""Whether columns can carry the layout and the order that a rule asks for (Iceberg spec, "Partition transforms").

Iceberg refuses the rest too, when the table is made or written to: by then in words that name no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from repartition.changes.by_name import type_within
from repartition.errors import RepartitionError
from rsm_bridge.config.layout_terms import PartitionTerm, partition_term, row_order
from rsm_bridge.config.projections import ProjectionRule

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_TIMESTAMPS: Final = frozenset({"timestamp", "timestamp_ntz"})
_SIZED: Final = _WHOLE | {"decimal", "string", "binary"}
#: Spark's types that each transform takes; of decimals and the like without their size.
_TAKES: Final = {
    "bucket": _SIZED | _TIMESTAMPS | {"date"},
    "truncate": _SIZED,
    "year": _TIMESTAMPS | {"date"},
    "month": _TIMESTAMPS | {"date"},
    "day": _TIMESTAMPS | {"date"},
    "hour": _TIMESTAMPS,
}
#: That Iceberg's Z-order takes (its SparkZOrderUDF).
_INTERLEAVED: Final = _WHOLE | _TIMESTAMPS | {"float", "double", "string", "binary", "boolean", "date"}
_NESTED: Final = frozenset({"struct", "array", "map", "variant"})
#: The format version that has it.
_VARIANT_VERSION: Final = 3
#: What lists and maps are made of: Iceberg's name, and Spark's attribute.
_WITHIN: Final = (("element", "elementType"), ("key", "keyType"), ("value", "valueType"))
#: That Iceberg can write into Parquet; a struct without fields is none.
_STORED: Final = _INTERLEAVED | {"decimal", "char", "varchar", "variant"}


def require_layout(schema: Any, rule: ProjectionRule) -> None:
    """Refuses columns that no table has, a layout that none with these has, and an order that no rows can be in.

    Args:
        schema: Spark's, of the projection's rows.
        rule: with `partition_by`, `sort_by` and `source_order`.

    Raises:
        RepartitionError: `bad_rule`: names the term and the column's type.
    """
    for path, kind in _leaves(schema):
        if kind not in _STORED:
            said = f"`select`: {path} is of type {kind}, which no table has; give it another by CAST"
            raise RepartitionError("bad_rule", said)
        if kind == "variant" and rule.format_version < _VARIANT_VERSION:
            said = f"`select`: {path} is of type variant, which is of format_version {_VARIANT_VERSION}; set that"
            raise RepartitionError("bad_rule", said)
    for text in rule.partition_by:
        term = partition_term(text)
        kind = _type_of(schema, term.column, text)
        takes = _TAKES.get(term.kind)
        if kind in _NESTED if takes is None else kind not in takes:
            raise RepartitionError("bad_rule", f"partition_by: {text} cannot be made of a column of type {kind}")
        if term.field_name in schema.names:
            said = f"partition_by: {text} would be called {term.field_name}, as a column is; name that one otherwise"
            raise RepartitionError("bad_rule", said)
    order = row_order(rule.sort_by)
    for column in (term.column for term in order.terms):
        kind = _type_of(schema, column, column)
        if kind in _NESTED:
            raise RepartitionError("bad_rule", f"sort_by: {column} is a column of type {kind}, which has no order")
        if order.interleaved and kind not in _INTERLEAVED:
            raise RepartitionError("bad_rule", f"sort_by: zorder takes no column of type {kind}, as {column} is")
    for name in rule.source_order:
        kind = str(schema[name].dataType.typeName())
        if kind in _NESTED:
            said = f"source_order: {name} is a column of type {kind}; name what is within it in `select`"
            raise RepartitionError("bad_rule", said)


def _leaves(kind: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths and names of all types that are not made of others, in Spark's words."""
    within = [(field.name, field.dataType) for field in getattr(kind, "fields", ())]
    within += [(name, getattr(kind, at)) for name, at in _WITHIN if hasattr(kind, at)]
    for name, inner in within:
        yield from _leaves(inner, f"{path}.{name}" if path else name)
    if not within and path:
        yield path, str(kind.typeName())


def is_floating(schema: Any, term: PartitionTerm) -> bool:
    """Whether a term is a floating-point column as it is: −0.0 and 0.0 are equal to Spark, and two partitions."""
    return term.transform == "identity" and _type_of(schema, term.column, term.column) in {"float", "double"}


def _type_of(schema: Any, path: str, text: str) -> str:
    """Spark's name of a column's type, without its size."""
    kind = type_within(schema, path)
    if kind is None:
        raise RepartitionError("bad_rule", f"partition_by or sort_by: {text}: the projection has no column {path}")
    return str(kind.typeName())
