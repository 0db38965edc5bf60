"""Where in a projection's table the keys of some changes can be: Iceberg skips the files that cannot have them."""

from __future__ import annotations

from typing import Any, Final

from repartition.limits import KEY_CHARS_COMPARED_MAX
from repartition.run.target import literal
from rsm_bridge.config.layout_terms import partition_term
from rsm_bridge.config.projections import ProjectionRule

_ORDERED: Final = frozenset({"byte", "short", "integer", "long", "date", "string"})


def near(changes: Any, rule: ProjectionRule, catalog: str) -> list[str]:
    """SQL conditions, of a table `t`, that all hold for each of its rows that has a key of the changes.

    They say between what the keys are, and in which buckets of the table's partitions.

    Args:
        changes: a persisted frame, none of its keys null.
        rule: the projection's.
        catalog: its name in Spark, quoted.
    """
    from pyspark.sql import functions

    kinds = {field.name: field.dataType.typeName() for field in changes.schema.fields}
    ordered = [name for name in rule.key if kinds[name] in _ORDERED]
    terms = [partition_term(text) for text in rule.partition_by]
    bucketed = [term for term in terms if term.kind == "bucket" and term.column in rule.key]
    # A date as days since 1970: Spark's go beyond the years that Python's have.
    plain = {name: f"unix_date(`{name}`)" if kinds[name] == "date" else f"`{name}`" for name in ordered}
    asked = [f"{end}({plain[name]})" for name in ordered for end in ("min", "max")]
    asked += [f"sort_array(collect_set({term.call(catalog)}))" for term in bucketed]
    if not asked:
        return []
    told = list(changes.select(*(functions.expr(text) for text in asked)).collect()[0])
    found: list[str] = []
    for number, name in enumerate(ordered):
        least, most = (bound(value, kinds[name]) for value in told[2 * number : 2 * number + 2])
        if least is not None and most is not None:
            found.append(f"t.`{name}` BETWEEN {least} AND {most}")
    for term, numbers in zip(bucketed, told[2 * len(ordered) :], strict=True):
        if 0 < len(numbers) < term.size:
            call = f"{catalog}.system.bucket({term.size}, t.`{term.column}`)"
            found.append(f"{call} IN ({', '.join(map(str, numbers))})")
    return found


def bound(value: Any, kind: str) -> str | None:
    """A least or greatest key of a type, for Spark's SQL; a date in days. None: it is not compared with."""
    if isinstance(value, int):
        return f"date_from_unix_date({value})" if kind == "date" else str(value)
    # Spark's texts may be no UTF-8: Python is told of such bytes by this character, and the text is another then.
    if isinstance(value, str) and len(value) <= KEY_CHARS_COMPARED_MAX and "\ufffd" not in value:
        return literal(value)
    return None
