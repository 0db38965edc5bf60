"""A column as another type has it: fields of structs go by their names, within lists and maps too.

Spark's own cast goes by position, and its writes fail where a struct lacks a field of the table's.
"""

from __future__ import annotations

from typing import Any


def as_type(column: Any, given: Any, wanted: Any, *, lossy: bool) -> Any:
    """The column; itself where the types are alike, so that nothing is worked out then. Nulls stay null.

    Args:
        column: Spark's.
        given: its type; None: it is not there, and all is null.
        wanted: the type to become. Fields that it has not are left out, those that only it has are null.
        lossy: what does not fit is null. Otherwise it stays as it is, for a write to widen or to refuse.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, AtomicType, MapType, StructType

    if given is not None and _alike(given, wanted):
        return column
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        there = {f.name: f.dataType for f in given.fields}
        within = (
            as_type(column.getField(f.name), there.get(f.name), f.dataType, lossy=lossy).alias(f.name)
            for f in wanted.fields
        )
        return functions.when(column.isNotNull(), functions.struct(*within))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        inner = given.elementType, wanted.elementType
        return functions.transform(column, lambda item: as_type(item, *inner, lossy=lossy))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _as_map(column, given, wanted, lossy=lossy)
    if given is not None and not lossy:
        return column
    plain = isinstance(given, AtomicType) and isinstance(wanted, AtomicType)
    return column.try_cast(wanted) if plain else functions.lit(None).cast(wanted)


def type_within(schema: Any, path: str) -> Any:
    """Spark's type of a column, which may be within structs: names with dots. None: there is none."""
    kind = schema
    for name in path.split("."):
        fields = {field.name: field.dataType for field in getattr(kind, "fields", ())}
        if name not in fields:
            return None
        kind = fields[name]
    return kind


def left_out_within(given: Any, wanted: Any) -> list[str]:
    """Fields within structs of `wanted` that `given` has not, as paths with dots; columns that it has not at all, no.

    Args:
        given: the type of a row.
        wanted: of another.
    """
    there = {f.name: f.dataType for f in given.fields}
    found = []
    for field in wanted.fields:
        if field.name in there:
            found += [f"{field.name}.{path}" for path in _lost_of(there[field.name], field.dataType)]
    return found


def _lost_of(given: Any, wanted: Any) -> list[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return [*(name for name in wanted.names if name not in given.names), *left_out_within(given, wanted)]
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _lost_of(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return [*_lost_of(given.keyType, wanted.keyType), *_lost_of(given.valueType, wanted.valueType)]
    return []


def _as_map(column: Any, given: Any, wanted: Any, *, lossy: bool) -> Any:
    from pyspark.sql import functions

    keys, values = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
    if not _alike(*keys):
        if lossy:  # keys could become null, or two of them one, which fails the job
            return functions.lit(None).cast(wanted)
        column = functions.transform_keys(column, lambda key, _: as_type(key, *keys, lossy=False))
    if _alike(*values):
        return column
    return functions.transform_values(column, lambda _, value: as_type(value, *values, lossy=lossy))


def _alike(given: Any, wanted: Any) -> bool:
    """Whether they differ in nothing but what may be null, and comments."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(given, StructType) and isinstance(wanted, StructType):
        pairs = zip(given.fields, wanted.fields, strict=False)
        return given.names == wanted.names and all(_alike(one.dataType, other.dataType) for one, other in pairs)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _alike(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _alike(given.keyType, wanted.keyType) and _alike(given.valueType, wanted.valueType)
    return bool(given == wanted)
