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
from repartition.run.envelope import DELETED, KAFKA, SEEN, STEP, unwrapped
from repartition.spark.internals import tried
from rsm_bridge.config.projections import ProjectionRule

REASON: Final = "error"
_ROW: Final = "__tierberg_row"
_KEEP: Final = "__tierberg_keep"
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

    found = unwrapped(records, rule)
    every = [f"`{name}`" for name in found.names]
    selected = [text for item in rule.select for text in (every if item == "*" else [item])]
    names = _names(found.frame, selected)
    added = [name for name in IDENTITY if name not in names]
    selected, names = [*selected, *added], [*names, *added]
    _refuse_names(names, rule)
    # A column as it is cannot fail, and files are skipped by what is asked of it; only the rest is tried.
    plain = {
        name for name, text in zip(names, selected, strict=True) if name in found.names and text in (name, f"`{name}`")
    }
    replaced = [name for name in IDENTITY if name not in plain]
    if replaced:
        said = f"`select` gives {' and '.join(replaced)} another meaning: by them a row is known; choose another name"
        raise RepartitionError("bad_rule", said)
    risky = [text for name, text in zip(names, selected, strict=True) if name not in plain]
    within = iter(_names(found.frame, risky) if risky else ())
    flat = found.frame.select(KAFKA, DELETED, STEP, f"{SEEN}.*")
    judged = flat.select(
        KAFKA,
        DELETED,
        STEP,
        *(functions.col(f"`{name}`") for name in sorted(plain)),
        *([tried(session, f"struct({', '.join(risky)})").alias(_ROW)] if risky else []),
        *([tried(session, f"struct(coalesce(({rule.where}), false) AS keep)").alias(_KEEP)] if rule.where else []),
    )
    told = {name: functions.col(f"`{name}`" if name in plain else f"{_ROW}.`{next(within)}`") for name in names}
    faults = _faults(records.columns, [told[name] for name in rule.key], risky=bool(risky), where=bool(rule.where))
    bad = functools.reduce(operator.or_, (condition for condition, _ in faults), functions.lit(False))
    rows = judged.where(~bad)
    kept = functions.col(f"{_KEEP}.keep") if rule.where else functions.lit(True)
    given = [column.alias(name) for name, column in told.items()]
    if rule.mode == "append":
        rows = rows.where(kept).select(*given)
    else:  # a row that has left the condition has left the projection
        rows = rows.select(*given, (functions.col(DELETED) | ~kept).alias(DELETED), STEP)
    letter = [functions.col(f"{KAFKA}.`{name}`") for name in _LETTER if name in records.columns]
    reason = functions.coalesce(*(functions.when(condition, text) for condition, text in faults), functions.lit(""))
    dead = judged.where(bad).select(*letter, reason.alias(REASON)).dropDuplicates(list(IDENTITY))
    return Changes(rows, dead)


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


def _names(frame: Any, selected: Sequence[str]) -> list[str]:
    """Names of the columns that `select` gives."""
    plain = frame.select(f"{SEEN}.*").selectExpr(f"struct({', '.join(selected)}) AS row")
    names: list[str] = plain.schema["row"].dataType.names
    return names


def _faults(names: Sequence[str], key: Sequence[Any], *, risky: bool, where: bool) -> list[tuple[Any, Any]]:
    """Why a change has no row: conditions, never null, each with what is said of it; the first that holds counts."""
    from pyspark.sql import functions

    faults: list[tuple[Any, Any]] = []
    if columns.ERROR in names:
        error = functions.col(f"{KAFKA}.`{columns.ERROR}`")
        faults.append((error.isNotNull(), functions.concat(functions.lit("undecodable: "), error)))
    if risky:
        faults.append((functions.col(_ROW).isNull(), functions.lit("select failed")))
    if where:
        faults.append((functions.col(_KEEP).isNull(), functions.lit("where failed")))
    faults += [(column.isNull(), functions.lit("the key is null")) for column in key]
    return faults
