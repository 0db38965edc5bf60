"""From records to rows of a projection: the rule's `select`, `where` and envelope, each record on its own.

A row whose transform fails is not lost and stops nothing else: every expression runs inside Spark's `TryEval`, which is
null where it raised. Such rows, and those that were undecodable in the topic's table already, are dead letters.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError
from repartition.run.by_name import as_type
from rsm_bridge.config.projections import ProjectionRule

#: Names of ours beside the user's columns; the prefix keeps them apart.
DELETED: Final = "__tierberg_deleted"
STEP: Final = "__tierberg_step"
REASON: Final = "error"
_KAFKA: Final = "__tierberg_kafka"
_SEEN: Final = "__tierberg_seen"
_ROW: Final = "__tierberg_row"
_KEEP: Final = "__tierberg_keep"
_CHANGE: Final = "__tierberg_change"
#: Kafka's columns that every row of a projection has.
IDENTITY: Final = (columns.PARTITION, columns.OFFSET)
#: What a dead letter has of its record, where the topic's table has it.
_LETTER: Final = (
    *IDENTITY,
    columns.TIMESTAMP,
    columns.KEY,
    columns.HEADERS,
    columns.RAW_VALUE,
    columns.VALUE_SIZE,
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Lazy frames over the same records.

    Attributes:
        rows: the columns of the projection; under `upsert` DELETED (bool) and STEP (order within one record) too.
        dead: of each record that has no row, what it was and REASON; once per record.
    """

    rows: Any
    dead: Any


def changes(session: Any, records: Any, rule: ProjectionRule) -> Changes:
    """What `records`, a frame over the topic's table, become under `rule`."""
    from pyspark.sql import functions

    unwrapped = _unwrapped(records, rule)
    seen = unwrapped.schema[_SEEN].dataType.names
    selected = [text for item in rule.select for text in ([f"`{name}`" for name in seen] if item == "*" else [item])]
    names = _names(unwrapped, selected)
    added = [name for name in IDENTITY if name not in names]
    selected, names = [*selected, *added], [*names, *added]
    _refuse_names(names, rule)
    # A column as it is cannot fail, and files are skipped by what is asked of it; only the rest is tried.
    plain = {name for name, text in zip(names, selected, strict=True) if name in seen and text in (name, f"`{name}`")}
    risky = [text for name, text in zip(names, selected, strict=True) if name not in plain]
    within = iter(_names(unwrapped, risky) if risky else ())
    flat = unwrapped.select(_KAFKA, DELETED, STEP, f"{_SEEN}.*")
    tried = flat.select(
        _KAFKA,
        DELETED,
        STEP,
        *(functions.col(f"`{name}`") for name in sorted(plain)),
        *([_tried(session, f"struct({', '.join(risky)})").alias(_ROW)] if risky else []),
        *([_tried(session, f"struct(coalesce(({rule.where}), false) AS keep)").alias(_KEEP)] if rule.where else []),
    )
    told = {name: functions.col(f"`{name}`" if name in plain else f"{_ROW}.`{next(within)}`") for name in names}
    faults = _faults(records.columns, [told[name] for name in rule.key], risky=bool(risky), where=bool(rule.where))
    bad = functools.reduce(operator.or_, (condition for condition, _ in faults), functions.lit(False))
    rows = tried.where(~bad)
    kept = functions.col(f"{_KEEP}.keep") if rule.where else functions.lit(True)
    given = [column.alias(name) for name, column in told.items()]
    if rule.mode == "append":
        rows = rows.where(kept).select(*given)
    else:  # a row that has left the condition has left the projection
        rows = rows.select(*given, (functions.col(DELETED) | ~kept).alias(DELETED), STEP)
    letter = [functions.col(f"{_KAFKA}.`{name}`") for name in _LETTER if name in records.columns]
    reason = functions.coalesce(*(functions.when(condition, text) for condition, text in faults), functions.lit(""))
    dead = tried.where(bad).select(*letter, reason.alias(REASON)).dropDuplicates(list(IDENTITY))
    return Changes(rows, dead)


def _unwrapped(records: Any, rule: ProjectionRule) -> Any:
    """One row per change: the record itself, what `select` sees, whether it deletes, and its place in the record."""
    from pyspark.sql import functions

    record = functions.struct(*(functions.col(f"`{name}`") for name in records.columns))
    tombstone = functions.col(columns.VALUE_SIZE).isNull()
    if rule.envelope == "none":
        deleted = tombstone if rule.mode == "upsert" else functions.lit(False)
        return records.select(
            record.alias(_KAFKA), record.alias(_SEEN), deleted.alias(DELETED), functions.lit(0).alias(STEP)
        )
    if not _is_struct(records, "after") or "op" not in records.columns:
        raise RepartitionError("bad_rule", "envelope: debezium needs the columns `after`, a struct, and `op`")
    kafka = [functions.col(f"`{name}`") for name in records.columns if name.startswith("_kafka_")]
    fields = records.schema["after"].dataType.fields

    def side(name: str, *, gone: bool, step: int) -> Any:
        there = {f.name: f.dataType for f in records.schema[name].dataType.fields}
        cast = (
            as_type(functions.col(f"{name}.`{f.name}`"), there.get(f.name), f.dataType, lossy=True).alias(f.name)
            for f in fields
        )
        return functions.struct(
            functions.struct(*cast, *kafka).alias("seen"),
            functions.lit(gone).alias("gone"),
            functions.lit(step).alias("step"),
        )

    after = functions.when(
        functions.col("after").isNotNull() & (functions.col("op") != "d"), side("after", gone=False, step=1)
    )
    sides = [after]
    if _is_struct(records, "before"):
        # A key that changes leaves its old row: `before` deletes first, and where it has the same key `after` is next.
        sides.insert(0, functions.when(functions.col("before").isNotNull(), side("before", gone=True, step=0)))
    found = functions.array_compact(functions.array(*sides))
    # What has neither side, or did not decode, goes on as a row of nulls, and is a dead letter for its key.
    nothing = functions.array(side("after", gone=True, step=0))
    either = functions.when(functions.size(found) == 0, nothing).otherwise(found)
    told = records.where(~tombstone).select(record.alias(_KAFKA), functions.explode(either).alias(_CHANGE))
    return told.select(
        _KAFKA,
        functions.col(f"{_CHANGE}.seen").alias(_SEEN),
        functions.col(f"{_CHANGE}.gone").alias(DELETED),
        functions.col(f"{_CHANGE}.step").alias(STEP),
    )


def _is_struct(records: Any, name: str) -> bool:
    return name in records.columns and hasattr(records.schema[name].dataType, "names")


def _refuse_names(names: Sequence[str], rule: ProjectionRule) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RepartitionError("bad_rule", f"`select` gives {', '.join(twice)} twice; name one of them with AS")
    needed = {"key": rule.key}
    if rule.key_order == "timestamp":
        needed["key_order: timestamp"] = (columns.TIMESTAMP,)
    if rule.retention is not None:
        needed["retention"] = (columns.TIMESTAMP,)
    for why, wanted in needed.items():
        missing = [name for name in wanted if name not in names]
        if missing:
            raise RepartitionError("bad_rule", f"`{why}` needs {', '.join(missing)}, which `select` does not give")


def _names(unwrapped: Any, selected: Sequence[str]) -> list[str]:
    """Names of the columns that `select` gives."""
    plain = unwrapped.select(f"{_SEEN}.*").selectExpr(f"struct({', '.join(selected)}) AS row")
    names: list[str] = plain.schema["row"].dataType.names
    return names


def _faults(names: Sequence[str], key: Sequence[Any], *, risky: bool, where: bool) -> list[tuple[Any, Any]]:
    """Why a change has no row: conditions, never null, each with what is said of it; the first that holds counts."""
    from pyspark.sql import functions

    faults: list[tuple[Any, Any]] = []
    if columns.ERROR in names:
        error = functions.col(f"{_KAFKA}.`{columns.ERROR}`")
        faults.append((error.isNotNull(), functions.concat(functions.lit("undecodable: "), error)))
    if risky:
        faults.append((functions.col(_ROW).isNull(), functions.lit("select failed")))
    if where:
        faults.append((functions.col(_KEEP).isNull(), functions.lit("where failed")))
    faults += [(column.isNull(), functions.lit("the key is null")) for column in key]
    return faults


def _tried(session: Any, text: str) -> Any:
    """A column: the expression, or null where it raises. Spark's SQL has no name for this."""
    from pyspark.sql.classic.column import Column

    jvm = session._jvm
    parsed = session._jsparkSession.sessionState().sqlParser().parseExpression(text)
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tried))
