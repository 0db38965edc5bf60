"""From records to rows of a projection: the rule's `select`, `where` and envelope, each record on its own.

A row whose transform fails is not lost and stops nothing else: every expression runs inside Spark's `TryEval`, which is
null where it raised. Such rows, and those that were undecodable in the topic's table already, are dead letters.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError
from repartition.run.envelope import DELETED, KAFKA, LEFT_OUT, SEEN, STEP, Unwrapped, unwrapped
from repartition.spark.internals import columns_read, observed, tried
from rsm_bridge.config.projections import ProjectionRule

REASON: Final = "error"
#: Of a projection with `soft_deletes`: whether the row is deleted.
MARK: Final = "__deleted"
#: Columns of the projection that a change does not say, as an array, perhaps empty: they stay as they are.
KEPT: Final = "__tierberg_kept"
_ROW: Final = "__tierberg_row"
_KEEP: Final = "__tierberg_keep"
_BAD: Final = "__tierberg_bad_row"
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
        rows: the columns of the projection; under `upsert` DELETED (the row goes), STEP (order within one record) and
            KEPT too.
        dead: of each record that has no row, what it was and REASON; once per record.
        refused: told how many changes have no row by what works `rows` out.
        may_keep: all columns that KEPT may have.
    """

    rows: Any
    dead: Any
    refused: Any
    may_keep: tuple[str, ...] = ()

    def count_dead(self) -> int:
        """How many dead letters there are. Once `rows` were worked out, nothing is read again where there are none."""
        return 0 if observed(self.refused) == 0 else int(self.dead.count())


def changes(session: Any, records: Any, rule: ProjectionRule) -> Changes:
    """What `records`, a frame over the topic's table, become under `rule`."""
    from pyspark.sql import Observation, functions

    found = unwrapped(records, rule)
    chosen = _chosen(found, rule)
    _refuse_names(chosen, rule)
    risky = [text for text, _ in chosen.texts if text not in chosen.plain]
    flat = found.frame.select(KAFKA, DELETED, STEP, LEFT_OUT, f"{SEEN}.*")
    judged = flat.select(
        KAFKA,
        DELETED,
        STEP,
        LEFT_OUT,
        *(functions.col(f"`{name}`") for name in sorted(chosen.plain.values())),
        *([tried(session, f"struct({', '.join(risky)})").alias(_ROW)] if risky else []),
        *([tried(session, f"struct(coalesce(({rule.where}), false) AS keep)").alias(_KEEP)] if rule.where else []),
    )
    told = {
        name: functions.col(f"`{name}`" if text in chosen.plain else f"{_ROW}.`{name}`")
        for text, names in chosen.texts
        for name in names
    }
    faults = _faults(records.columns, [told[name] for name in rule.key], risky=bool(risky), where=bool(rule.where))
    faults += _unplaced([told[name] for name in rule.source_order], rule)
    faults += _unsaid(found, rule)
    bad = functools.reduce(operator.or_, (condition for condition, _ in faults), functions.lit(False))
    letter = [functions.col(f"{KAFKA}.`{name}`") for name in _LETTER if name in records.columns]
    reason = functions.coalesce(*(functions.when(condition, text) for condition, text in faults), functions.lit(""))
    dead = judged.where(bad).select(*letter, reason.alias(REASON)).dropDuplicates(list(IDENTITY))
    kept = functions.col(f"{_KEEP}.keep") if rule.where else functions.lit(True)
    given = [column.alias(name) for name, column in told.items()]
    refused = Observation()
    # Without the record: of what is observed every column is read.
    marked = judged.withColumn(_BAD, bad).drop(KAFKA)
    rows = marked.observe(refused, functions.count_if(functions.col(_BAD))).where(~functions.col(_BAD))
    if rule.mode == "append":
        return Changes(rows.where(kept).select(*given), dead, refused)
    keeping = _keeping(found, chosen, rule)
    return Changes(rows.select(*given, *_verdict(rule, kept, keeping)), dead, refused, tuple(keeping))


def _verdict(rule: ProjectionRule, kept: Any, keeping: Mapping[str, frozenset[str]]) -> list[Any]:
    """What a row of `upsert` has beside its columns. A row that has left the condition has left the projection."""
    from pyspark.sql import functions

    deleted = functions.col(DELETED)
    gone = ~deleted & ~kept if rule.soft_deletes else deleted | ~kept
    mark = [deleted.alias(MARK)] if rule.soft_deletes else []
    unsaid = [functions.when(_lacks(names), functions.lit(name)) for name, names in keeping.items()]
    stay = functions.array_compact(functions.array(*unsaid))
    return [*mark, gone.alias(DELETED), STEP, stay.cast("array<string>").alias(KEPT)]


def _lacks(names: Iterable[str]) -> Any:
    """Whether a change leaves out one of these columns of what `select` sees; never null."""
    from pyspark.sql import functions

    listed = functions.array(*(functions.lit(name) for name in sorted(names)))
    return functions.coalesce(functions.arrays_overlap(functions.col(LEFT_OUT), listed), functions.lit(False))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What `select` gives.

    Attributes:
        texts: its expressions, each with the names of what it gives.
        plain: those that are a column as it is, which cannot fail, and by which files are skipped; with its name. Only
            the rest is tried.
    """

    texts: Sequence[tuple[str, Sequence[str]]]
    plain: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return [name for _, names in self.texts for name in names]


def _chosen(found: Unwrapped, rule: ProjectionRule) -> _Chosen:
    every = [f"`{name}`" for name in found.names]
    selected = [text for item in rule.select for text in (every if item == "*" else [item])]
    plain = {text: name for name in found.names for text in (name, f"`{name}`") if text in selected}
    texts = [(text, [plain[text]] if text in plain else _names(found.frame, text)) for text in selected]
    given = {name for _, names in texts for name in names}
    added = {name: name for name in IDENTITY if name not in given}
    return _Chosen([*texts, *((name, [name]) for name in added)], plain | added)


def _keeping(found: Unwrapped, chosen: _Chosen, rule: ProjectionRule) -> dict[str, frozenset[str]]:
    """Columns that may stay as they are, with what they read of that changes may leave out."""
    reads: dict[str, frozenset[str]] = {}
    for text, names in chosen.texts if found.may_lack else ():
        lacking = _reads(found, text, plain=chosen.plain) & found.may_lack
        reads |= {name: lacking for name in names if lacking and name not in rule.key}
    return reads


def _reads(found: Unwrapped, text: str, plain: Mapping[str, str]) -> frozenset[str]:
    return frozenset([plain[text]]) if text in plain else columns_read(found.frame.select(f"{SEEN}.*"), text)


def _unsaid(found: Unwrapped, rule: ProjectionRule) -> list[tuple[Any, str]]:
    """Rows of which nobody knows whether they are in the projection."""
    from pyspark.sql import functions

    if not rule.where or not found.may_lack:
        return []
    needed = columns_read(found.frame.select(f"{SEEN}.*"), rule.where) & found.may_lack
    if not needed:
        return []
    return [(~functions.col(DELETED) & _lacks(needed), f"`where` reads {', '.join(sorted(needed))}, left out here")]


def _unplaced(position: Sequence[Any], rule: ProjectionRule) -> list[tuple[Any, str]]:
    """Deletes without a position: they would count as older than every row that has one, and do nothing."""
    from pyspark.sql import functions

    if not position:
        return []
    unknown = functools.reduce(operator.and_, (column.isNull() for column in position), functions.col(DELETED))
    return [(unknown, f"a delete that does not say {', '.join(rule.source_order)}")]


def _refuse_names(chosen: _Chosen, rule: ProjectionRule) -> None:
    names = chosen.names
    replaced = [name for name in IDENTITY if name not in chosen.plain.values()]
    if replaced:
        said = f"`select` gives {' and '.join(replaced)} another meaning: by them a row is known; choose another name"
        raise RepartitionError("bad_rule", said)
    if rule.soft_deletes and MARK in names:
        raise RepartitionError("bad_rule", f"`soft_deletes` gives the column {MARK}; name that of `select` otherwise")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RepartitionError("bad_rule", f"`select` gives {', '.join(twice)} twice; name one of them with AS")
    needed = {"key": rule.key, "source_order": rule.source_order}
    if rule.key_order == "timestamp":
        needed["key_order: timestamp"] = (columns.TIMESTAMP,)
    if rule.retention is not None:
        needed["retention"] = (columns.TIMESTAMP,)
    for why, wanted in needed.items():
        missing = [name for name in wanted if name not in names]
        if missing:
            raise RepartitionError("bad_rule", f"`{why}` needs {', '.join(missing)}, which `select` does not give")


def _names(frame: Any, text: str) -> list[str]:
    """Names of the columns that an expression of `select` gives."""
    plain = frame.select(f"{SEEN}.*").selectExpr(f"struct({text}) AS row")
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
