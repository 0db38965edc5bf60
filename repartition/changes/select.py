"""From records to rows of a projection: the rule's `select`, `where` and envelope, each record on its own.

A row whose transform fails is not lost and stops nothing else: every expression runs inside Spark's `TryEval`, which is
null where it raised. Such rows, and those that were undecodable in the topic's table already, are dead letters.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from iceberg_catalog.evolve.names import ENGINES_COLUMNS
from repartition.changes.by_name import type_within
from repartition.changes.envelope import (
    DELETED,
    FAULT,
    KAFKA,
    LEFT_OUT,
    OURS,
    POSITION,
    SEEN,
    WAS,
    Unwrapped,
    itemized,
    unwrapped,
)
from repartition.errors import RepartitionError, first_line
from repartition.spark.internals import columns_read, observed, stands_alone, tried
from rsm_bridge.config.layout_terms import COLUMN_PATH, partition_term, quoted_path
from rsm_bridge.config.projections import ProjectionRule

REASON: Final = "error"
#: Of a projection with `soft_deletes`: whether the row is deleted.
MARK: Final = "__deleted"
#: Columns of the projection that a change does not say, as an array, perhaps empty: they stay as they are.
KEPT: Final = "__tierberg_kept"
#: Whether a row is in the projection, by the text of `where`.
KEEPS: Final = "coalesce(({}), false) AS row"
_NEEDED: Final = "__tierberg_needed"
_ROW: Final = "__tierberg_row"
_KEEP: Final = "__tierberg_keep"
_BAD: Final = "__tierberg_bad_row"
#: Kafka's columns that every row of a projection has.
IDENTITY: Final = (columns.PARTITION, columns.OFFSET)
#: What a dead letter has of its record, where the topic's table has it.
_LETTER: Final = (
    *IDENTITY,
    POSITION,
    columns.TIMESTAMP,
    columns.KEY,
    columns.HEADERS,
    columns.RAW_VALUE,
    columns.VALUE_SIZE,
)


def identity(rule: ProjectionRule) -> tuple[str, ...]:
    """Columns by which a row of an append projection is known, which every projection's rows have."""
    return (*IDENTITY, POSITION) if rule.explode else IDENTITY


@dataclass(frozen=True, slots=True)
class Changes:
    """Lazy frames over the same records.

    Attributes:
        rows: the columns of the projection; under `upsert` DELETED (the row goes) and KEPT too, at most one of
            each record and key.
        dead: of each record that has no row, what it was and REASON; once per record, or per item of one.
        refused: told how many changes have no row by what works `rows` out.
        may_keep: all columns that KEPT may have.
    """

    rows: Any
    dead: Any
    refused: Any
    may_keep: tuple[str, ...] = ()

    def plain_rows(self) -> Any:
        """`rows` with the columns of the projection alone."""
        return self.rows.drop(DELETED, KEPT)

    def count_dead(self) -> int:
        """How many dead letters there are. Once `rows` were worked out, nothing is read again where there are none."""
        return 0 if observed(self.refused) == 0 else int(self.dead.count())


def changes(session: Any, records: Any, rule: ProjectionRule) -> Changes:
    """What `records`, a frame over the topic's table, become under `rule`. A dead letter changes nothing."""
    from pyspark.sql import Observation, functions

    records = itemized(records, rule)
    found = unwrapped(records, rule)
    chosen = _chosen(session, found, rule)
    if rule.where:
        _names(session, found.frame, rule.where, said="where")
    refuse_names(chosen.texts, chosen.plain, rule, found.names)
    told = chosen.told(lambda name: functions.col(f"`{name}`"))
    judged = _judged(session, found, chosen, rule)
    faults = _faults(records.columns, chosen, told, rule, moves=found.moves)
    faults += _unplaced([told[name] for name in rule.source_order], rule)
    faults += _unsaid(found, rule)
    bad = functools.reduce(operator.or_, (condition for condition, _ in faults), functions.lit(False))
    ours = [name for name in _LETTER if name in records.columns and (name != POSITION or rule.explode)]
    letter = [functions.col(f"{KAFKA}.`{name}`") for name in ours]
    reason = functions.coalesce(*(functions.when(condition, text) for condition, text in faults), functions.lit(""))
    dead = judged.where(bad).select(*letter, reason.alias(REASON))
    kept = functions.col(f"{_KEEP}.row") if rule.where else functions.lit(True)
    given = [column.alias(name) for name, column in told.items()]
    refused = Observation()
    # Without the record: of what is observed every column is read.
    marked = judged.withColumn(_BAD, bad).drop(KAFKA)
    rows = marked.observe(refused, functions.count_if(functions.col(_BAD))).where(~functions.col(_BAD))
    if rule.mode == "append":
        return Changes(rows.where(kept).select(*given), dead, refused)
    keeping = _keeping(found, chosen, rule)
    change = [*given, *_verdict(rule, kept, keeping)]
    if not found.moves:
        return Changes(rows.select(*change), dead, refused, tuple(keeping))
    then = chosen.told(lambda name: functions.col(WAS).getField(name))
    # Where the key is the same the row itself follows.
    other = functools.reduce(operator.or_, (~then[name].eqNullSafe(told[name]) for name in rule.key))
    gone = functions.col(WAS).isNotNull() & other
    was = functions.when(gone, functions.struct(*_moved(chosen, rule, keeping)))
    both = functions.array_compact(functions.array(was, functions.struct(*change)))
    return Changes(rows.select(functions.inline(both)), dead, refused, tuple(keeping))


def _judged(session: Any, found: Unwrapped, chosen: _Chosen, rule: ProjectionRule) -> Any:
    """What `select` and `where` say of each record; null what fails. WAS has what `select` says of the row before."""
    from pyspark.sql import functions

    frame, beside = found.frame, [KAFKA, DELETED, LEFT_OUT, FAULT]
    if found.moves:
        was = functions.struct(*chosen.worked_out(session))
        there = functions.col(WAS).isNotNull()
        flat = frame.select(*beside, SEEN, WAS, f"{WAS}.*")
        frame = flat.select(*beside, SEEN, functions.when(there, was).alias(WAS))
        beside = [*beside, WAS]
    keep = [tried(session, f"struct({KEEPS.format(rule.where)})").alias(_KEEP)] if rule.where else []
    return frame.select(*beside, f"{SEEN}.*").select(*beside, *chosen.worked_out(session), *keep)


def _verdict(rule: ProjectionRule, kept: Any, keeping: Mapping[str, frozenset[str]]) -> list[Any]:
    """What a row of `upsert` has beside its columns. A row that has left the condition has left the projection."""
    from pyspark.sql import functions

    deleted = functions.col(DELETED)
    gone = ~deleted & ~kept if rule.soft_deletes else deleted | ~kept
    mark = [deleted.alias(MARK)] if rule.soft_deletes else []
    unsaid = [functions.when(_lacks(names), functions.lit(name)) for name, names in keeping.items()]
    stay = functions.array_compact(functions.array(*unsaid))
    return [*mark, gone.alias(DELETED), stay.cast("array<string>").alias(KEPT)]


def _moved(chosen: _Chosen, rule: ProjectionRule, keeping: Iterable[str]) -> list[Any]:
    """The same as a change, of the row as it was, under another key: it is gone, or marked and stays as it was."""
    from pyspark.sql import functions

    # It goes by this change, not by the one that it was made by.
    now = chosen.told(lambda name: functions.col(f"`{name}`"))
    told = chosen.told(lambda name: functions.col(WAS).getField(name)) | {name: now[name] for name in rule.source_order}
    mark = [functions.lit(True).alias(MARK)] if rule.soft_deletes else []
    stay = functions.array(*(functions.lit(name) for name in keeping if rule.soft_deletes)).cast("array<string>")
    gone = functions.lit(not rule.soft_deletes).alias(DELETED)
    return [*(column.alias(name) for name, column in told.items()), *mark, gone, stay.alias(KEPT)]


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
        needed: names of what a delete needs, too: if anything else fails, its row is known all the same.
    """

    texts: Sequence[tuple[str, Sequence[str]]]
    plain: Mapping[str, str]
    needed: frozenset[str]

    @property
    def tried(self) -> dict[str, list[str]]:
        """The expressions that may fail, by the column that has what they give; none that would be empty."""
        found: dict[str, list[str]] = {}
        for text, names in self.texts:
            if text not in self.plain:
                found.setdefault(_ROW if self.needed.isdisjoint(names) else _NEEDED, []).append(text)
        return found

    def worked_out(self, session: Any) -> list[Any]:
        """Columns, over those that `select` sees, from which :meth:`told` takes."""
        from pyspark.sql import functions

        plain = [functions.col(f"`{name}`") for name in sorted(set(self.plain.values()))]
        return [*plain, *(tried(session, f"struct({', '.join(texts)})").alias(at) for at, texts in self.tried.items())]

    def told(self, column: Callable[[str], Any]) -> dict[str, Any]:
        """Name and value of all columns. `column`: one of :meth:`worked_out`, by its name."""
        at = {text: where for where, texts in self.tried.items() for text in texts}
        return {
            name: column(self.plain[text]) if text in self.plain else column(at[text]).getField(name)
            for text, names in self.texts
            for name in names
        }


def _chosen(session: Any, found: Unwrapped, rule: ProjectionRule) -> _Chosen:
    """A column of `*` whose name is taken, in whatever case, by another expression or by us is called `name__2`.

    So is one that is called as an engine's own, and a member of `x.*`: whoever writes records may give them any name.
    """
    own = [text for text in rule.select if text != "*"]
    plain = {text: name for name in found.names for text in (name, f"`{name}`") if text in own}
    members = {text: _members(found.frame, text) for text in own}
    texts: list[tuple[str, Sequence[str]]] = [
        (text, [plain[text]] if text in plain else _names(session, found.frame, text))
        for text in own
        if not members[text]
    ]
    taken = {name.lower() for _, names in texts for name in names} | ({MARK} if rule.soft_deletes else set())
    taken |= ENGINES_COLUMNS
    taken |= {str(term.field_name).lower() for term in map(partition_term, rule.partition_by) if term.field_name}
    several = next((text for text, names in texts if len(names) > 1), None)
    if several is not None and rule.leaves_out:
        said = (
            f"`select`: {several} gives several columns, of which a change may leave some out; give each its own entry"
        )
        raise RepartitionError("bad_rule", said)
    texts = _with_members(own, members, dict(texts), taken | {name.lower() for name in identity(rule)})
    taken |= {name.lower() for _, names in texts for name in names}
    if "*" in rule.select:
        every = []
        free = {name.lower() for name in found.names} | taken
        for name in (name for name in found.names if name not in plain.values()):
            given, number = name, 2
            while given.lower() in (taken if given == name else free):
                given, number = f"{name}__{number}", number + 1
            free.add(given.lower())
            every.append((f"`{name}`", [given]))
            plain[f"`{name}`"] = name
        before = sum(max(1, len(members[text])) for text in rule.select[: rule.select.index("*")])
        texts = [*texts[:before], *every, *texts[before:]]
    given_names = {name for _, names in texts for name in names}
    added = {name: name for name in identity(rule) if name not in given_names}
    needed = {*rule.key, *rule.source_order, *identity(rule), columns.TIMESTAMP}
    return _Chosen([*texts, *((name, [name]) for name in added)], plain | added, frozenset(needed))


def _keeping(found: Unwrapped, chosen: _Chosen, rule: ProjectionRule) -> dict[str, frozenset[str]]:
    """Columns that may stay as they are, with what they read of that changes may leave out."""
    reads: dict[str, frozenset[str]] = {}
    for text, names in chosen.texts if found.may_lack else ():
        lacking = _reads(found, text, plain=chosen.plain) & found.may_lack
        placed = {*rule.key, *rule.source_order}  # by these a change is known, and said to be later
        reads |= {name: lacking for name in names if lacking and name not in placed}
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


def refuse_names(
    texts: Sequence[tuple[str, Sequence[str]]], plain: Mapping[str, str], rule: ProjectionRule, seen: Sequence[str]
) -> None:
    """Whether a projection can have the columns that `select` gives.

    Args:
        texts: expressions of `select`, each with the names of what it gives.
        plain: those that are a column as it is, with its name.
        rule: of the projection.
        seen: names of what `select` sees.

    Raises:
        RepartitionError: `bad_rule`; two are alike, one is a name of ours, or one that the rule needs is missing.
    """
    names = [name for _, given in texts for name in given]
    sources = {name: plain.get(text) for text, given in texts for name in given}
    replaced = [name for name in identity(rule) if sources.get(name) != name]
    if replaced:
        said = f"`select` gives {' and '.join(replaced)} another meaning: by them a row is known; choose another name"
        raise RepartitionError("bad_rule", said)
    reserved = [name for name in names if name.lower().startswith(OURS)]
    if reserved:
        raise RepartitionError(
            "bad_rule", f"`select` gives {', '.join(reserved)}: names with {OURS} are not for columns"
        )
    engines = [name for name in names if name.lower() in ENGINES_COLUMNS]
    if engines:
        said = f"`select` gives {', '.join(engines)}, as engines call a column of their own; name it otherwise with AS"
        raise RepartitionError("bad_rule", said)
    if rule.soft_deletes and MARK in names:
        raise RepartitionError("bad_rule", f"`soft_deletes` gives the column {MARK}; name that of `select` otherwise")
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise RepartitionError("bad_rule", f"`select` gives {', '.join(twice)} twice; name one of them with AS")
    needed = {"key": rule.key, "source_order": rule.source_order}
    if rule.key_order == "timestamp":
        needed["key_order: timestamp"] = (columns.TIMESTAMP,)
    if rule.retention is not None:
        needed["retention"] = (columns.TIMESTAMP,)
    for why, wanted in needed.items():
        missing = [name for name in wanted if name not in names]
        if not missing:
            continue
        unknown = [name for name in missing if name not in seen]
        if unknown and "*" in rule.select:
            raise RepartitionError(
                "bad_rule",
                f"`{why}` needs {', '.join(unknown)}, and the topic's table has no such column yet: columns come with "
                "the first records that are copied under a `value_format` with a schema, and rows of before have none. "
                "Look at the topic's rule (`tierberg config check`), and run again when such records are in the table",
            )
        raise RepartitionError("bad_rule", f"`{why}` needs {', '.join(missing)}, which `select` does not give")


def _names(session: Any, frame: Any, text: str, said: str = "select") -> list[str]:
    """Names of the columns that an expression of `select` gives; `said`: or of what it is an expression.

    Raises:
        RepartitionError: `bad_rule` where Spark cannot make sense of it, or a row of it does not stand alone.
    """
    from pyspark.errors import AnalysisException

    try:
        plain = frame.select(f"{SEEN}.*").selectExpr(
            f"struct({text}) AS row" if said == "select" else KEEPS.format(text)
        )
    except AnalysisException as error:
        raise RepartitionError("bad_rule", f"`{said}`: {text}: {first_line(error)}") from error
    if not stands_alone(session, plain):
        raise RepartitionError("bad_rule", f"`{said}`: {text}: a row must stand alone, without others and other tables")
    names: list[str] = getattr(plain.schema["row"].dataType, "names", [])
    return names


def _members(frame: Any, text: str) -> list[tuple[str, str]]:
    """What `x.*` stands for: expressions, each with its name; nothing for another text."""
    path = text.strip().removesuffix(".*")
    if path == text.strip() or not re.fullmatch(COLUMN_PATH, path):
        return []
    kind = type_within(frame.schema[SEEN].dataType, path)
    names: list[str] = getattr(kind, "names", [])
    return [
        (f"{quoted_path(path)}.`{name.replace('`', '``')}`", f"x_{name}" if name.lower().startswith(OURS) else name)
        for name in names
    ]


def _with_members(
    own: Sequence[str],
    members: Mapping[str, Sequence[tuple[str, str]]],
    others: Mapping[str, Sequence[str]],
    taken: Iterable[str],
) -> list[tuple[str, Sequence[str]]]:
    """The expressions in their order, those for members in the place of `x.*`.

    Args:
        own: texts of `select`, without `*`.
        members: by text, as :func:`_members` says.
        others: the names that the other texts give.
        taken: names that members give way to, in lower case.
    """
    texts: list[tuple[str, Sequence[str]]] = []
    free = {*taken, *(name.lower() for found in members.values() for _, name in found)}
    for text in own:
        if not members[text]:
            texts.append((text, others[text]))
        for expression, name in members[text]:
            given, number = name, 2
            while given.lower() in (taken if given == name else free):
                given, number = f"{name}__{number}", number + 1
            free.add(given.lower())
            texts.append((f"{expression} AS `{given.replace('`', '``')}`", [given]))
    return texts


def _faults(
    names: Sequence[str], chosen: _Chosen, told: Mapping[str, Any], rule: ProjectionRule, *, moves: bool
) -> list[tuple[Any, Any]]:
    """Why a record changes nothing: conditions, never null, each with what is said of it; the first that holds counts.

    Of a row that is deleted only what names it must not fail.
    """
    from pyspark.sql import functions

    faults: list[tuple[Any, Any]] = []
    stays, fault = ~functions.col(DELETED), functions.col(FAULT)
    if columns.ERROR in names:
        error = functions.col(f"{KAFKA}.`{columns.ERROR}`")
        said = functions.when(error.startswith("undecodable"), error)
        faults.append((error.isNotNull(), said.otherwise(functions.concat(functions.lit("undecodable: "), error))))
    faults.append((fault.isNotNull(), fault))
    if _NEEDED in chosen.tried:
        faults.append((functions.col(_NEEDED).isNull(), functions.lit("select failed")))
    if _ROW in chosen.tried:
        faults.append((stays & functions.col(_ROW).isNull(), functions.lit("select failed")))
    if rule.where:
        faults.append((stays & functions.col(_KEEP).isNull(), functions.lit("where failed")))
    faults += [(told[name].isNull(), functions.lit("the key is null")) for name in rule.key]
    if moves:
        was = chosen.told(lambda name: functions.col(WAS).getField(name))
        moved = functions.col(WAS).isNotNull()
        faults += [(moved & was[name].isNull(), functions.lit("the key of before is null")) for name in rule.key]
    return faults
