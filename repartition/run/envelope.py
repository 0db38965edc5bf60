"""Records to changes: what each record says about which row, before the rule's `select` sees it.

Without an envelope a record is one change. With `envelope: debezium` it is up to two: `before` deletes the row of the
old key, `after` is the new row. Which columns the events have depends on who decoded them and on what the first of
them were like (Debezium, "Data change events"):

* `before` is null in a snapshot and in every insert. Where JSON columns were inferred from such records it is text, and
  is read here by the columns of `after`; the other way round where a topic began with deletes.
* Connectors that write the schema into each event (`schemas.enable`) put the event into `payload`.
* A delete without `before` names its row by Kafka's key, which `_key` has, or is read here as JSON.
* Where both sides are text (MongoDB) an event is one row with the columns of the event, for a rule with a `select`.
* Messages of the source's log (`op: m`) have no row, and truncations (`op: t`) are for truncation.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError
from repartition.run.by_name import as_type
from repartition.run.unavailable import left_out
from rsm_bridge.config.projections import ProjectionRule

#: Names of ours beside the user's columns; the prefix keeps them apart.
DELETED: Final = "__tierberg_deleted"
STEP: Final = "__tierberg_step"
KAFKA: Final = "__tierberg_kafka"
SEEN: Final = "__tierberg_seen"
LEFT_OUT: Final = "__tierberg_left_out"
_CHANGE: Final = "__tierberg_change"
_BAD: Final = "__tierberg_bad"
_BEFORE: Final = "__tierberg_before"
_AFTER: Final = "__tierberg_after"
_OF_KEY: Final = "__tierberg_of_key"
#: Places in a record: the row of the old key goes first, where the key is the same its new row comes after.
MOVED: Final = 0
_MAIN: Final = 1
#: What `select` sees of an event beside its row, as one struct; `*` leaves it out.
EVENT: Final = "_event"
_OF_EVENT: Final = ("op", "ts_ms", "source")
_SIDES: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Changes of records.

    Attributes:
        frame: a row for each: KAFKA, the record's own columns; SEEN, what `select` sees; DELETED; STEP, its place in
            the record, MOVED for what an update says of the row as it was; LEFT_OUT, columns of SEEN whose values it
            does not say, as an array, empty or null for none.
        names: what `*` stands for.
        may_lack: all columns that LEFT_OUT may have.
    """

    frame: Any
    names: tuple[str, ...]
    may_lack: frozenset[str] = frozenset()


def unwrapped(records: Any, rule: ProjectionRule) -> Unwrapped:
    """The changes that records are.

    Args:
        records: a frame over the topic's table.
        rule: with an `envelope`.

    Raises:
        RepartitionError: `bad_rule` where the records are no such events.
    """
    from pyspark.sql import functions

    kafka = [name for name in records.columns if name.startswith("_kafka_")]
    record = functions.struct(*(functions.col(f"`{name}`") for name in kafka)).alias(KAFKA)
    tombstone = functions.col(columns.VALUE_SIZE).isNull()
    if rule.envelope == "none":
        deleted = tombstone if rule.mode == "upsert" else functions.lit(False)
        lacking = frozenset(records.columns) - frozenset(kafka) if rule.soft_deletes else frozenset()
        return _as_they_are(records, record, deleted, lacking)
    events = lifted(records)
    if "op" not in events.columns or not set(_SIDES) & set(events.columns):
        raise RepartitionError("bad_rule", "envelope: debezium needs change events, with `op`, `before` and `after`")
    events = events.where(~tombstone & ~functions.coalesce(functions.col("op").isin("m", "t"), functions.lit(False)))
    row = next((kind for kind in (_struct(events, name) for name in reversed(_SIDES)) if kind is not None), None)
    if row is None:
        return _as_text(events, record, rule)
    own = sorted(set(kafka) & set(row.names))
    if own:
        said = f"rows of the change events have Kafka's names ({', '.join(own)}), which no projection can tell apart"
        raise RepartitionError("bad_rule", said)
    # Nothing else needs it, and it is as many columns again.
    wanted = EVENT not in row.names and any(EVENT in text for text in (*rule.select, rule.where or ""))
    event = tuple(name for name in _OF_EVENT if wanted and name in events.columns)
    within = _Event(events=events, row=row, kafka=kafka, event=event, rule=rule)
    told = within.with_rows().select(record, functions.explode(within.changes()).alias(_CHANGE))
    frame = told.select(
        KAFKA,
        functions.col(f"{_CHANGE}.seen").alias(SEEN),
        functions.col(f"{_CHANGE}.gone").alias(DELETED),
        functions.col(f"{_CHANGE}.step").alias(STEP),
        functions.col(f"{_CHANGE}.lacks").alias(LEFT_OUT),
    )
    return Unwrapped(frame, (*row.names, *kafka), within.may_lack())


def lifted(records: Any) -> Any:
    """The columns of the event at the top, where it is the `payload` beside its `schema`."""
    kind = _struct(records, "payload")
    if kind is None or "op" not in kind.names or "schema" not in records.columns or "op" in records.columns:
        return records
    own = [f"`{name}`" for name in records.columns if name.startswith("_") and name not in kind.names]
    return records.select(*own, "payload.*")


def _as_text(events: Any, record: Any, rule: ProjectionRule) -> Unwrapped:
    """One change an event: its columns as they are."""
    from pyspark.sql import functions

    if "*" in rule.select:
        raise RepartitionError(
            "bad_rule",
            "envelope: debezium: neither `after` nor `before` is a struct in the topic's table, so nobody knows the "
            "columns of a row; give value_schema, or say in `select` what is read of them",
        )
    deleted = functions.coalesce(functions.col("op") == "d", functions.lit(False))
    lacking = frozenset(name for name in _SIDES if name in events.columns) if rule.soft_deletes else frozenset()
    return _as_they_are(events, record, deleted, lacking)


def _as_they_are(records: Any, record: Any, deleted: Any, lacking: frozenset[str]) -> Unwrapped:
    """One change a record, with its columns. `lacking`: those of which a delete says nothing."""
    from pyspark.sql import functions

    seen = functions.struct(*(functions.col(f"`{name}`") for name in records.columns))
    nothing = functions.when(deleted, _names(lacking)) if lacking else _no_names()
    step = functions.lit(_MAIN).alias(STEP)
    frame = records.select(record, seen.alias(SEEN), deleted.alias(DELETED), step, nothing.alias(LEFT_OUT))
    return Unwrapped(frame, tuple(records.columns), lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """The columns of an event. `row`: the type of its rows. `kafka`: names of Kafka's columns. `event`: of its own."""

    events: Any
    row: Any
    kafka: list[str]
    event: tuple[str, ...]
    rule: ProjectionRule

    def may_lack(self) -> frozenset[str]:
        """Columns of a row that some change may not say."""
        if self.rule.soft_deletes:
            return frozenset(self.row.names)
        return frozenset(name for name, _ in self._lacking(self._side("after")))

    def with_rows(self) -> Any:
        """The events with the rows they tell of: those of both sides, and of Kafka's key where a delete needs it.

        As columns of their own, for each is read many times over; null where there is none.
        """
        from pyspark.sql import functions

        sided = self.events.withColumns({_BEFORE: self._side("before"), _AFTER: self._side("after")})
        needed = self._deletes() & functions.col(_BEFORE).isNull()
        return sided.withColumn(_OF_KEY, functions.when(needed, self._key()))

    @staticmethod
    def _deletes() -> Any:
        from pyspark.sql import functions

        return functions.coalesce(functions.col("op") == "d", functions.lit(False))

    def changes(self) -> Any:
        """An array of what it changes, from the columns of `with_rows`; never empty."""
        from pyspark.sql import functions

        gone = self._deletes()
        before, after, key = (functions.col(name) for name in (_BEFORE, _AFTER, _OF_KEY))
        sides = [
            functions.when(before.isNotNull() & ~gone, self._gone(before, MOVED)),
            functions.when(before.isNotNull() & gone, self._gone(before, _MAIN)),
            functions.when(key.isNotNull(), self._gone(key, _MAIN)),
            functions.when(after.isNotNull() & ~gone, self._new(after, before)),
        ]
        found = functions.array_compact(functions.array(*sides))
        # What has neither side, or did not decode, goes on as a row of nulls, and is a dead letter for its key.
        nothing = functions.array(self._gone(functions.lit(None).cast(self.row), _MAIN))
        return functions.when(functions.size(found) == 0, nothing).otherwise(found)

    def _gone(self, row: Any, step: int) -> Any:
        """The row is deleted. Where it stays as it was, nothing else is said of it."""
        fields = {name: row.getField(name) for name in self.row.names}
        lacks = _names(self.row.names) if self.rule.soft_deletes else _no_names()
        return self._change(fields, lacks, gone=True, step=step)

    def _new(self, row: Any, before: Any) -> Any:
        """The row is new, or another one. What an update leaves out is what it was, which `before` may say."""
        from pyspark.sql import functions

        fields = {name: row.getField(name) for name in self.row.names}
        lacking, was = dict(self._lacking(row)), dict(self._lacking(before))
        for name, missing in lacking.items():
            old = functions.when(~was[name], before.getField(name))  # null where it has none, too
            fields[name] = functions.when(missing, old).otherwise(fields[name])
        unsaid = [
            functions.when(missing & fields[name].isNull(), functions.lit(name)) for name, missing in lacking.items()
        ]
        if not unsaid:
            return self._change(fields, _no_names(), gone=False, step=_MAIN)
        # There was no row before one that is made, so that nothing can be kept.
        update = functions.col("op") == "u"
        lacks = functions.when(update, functions.array_compact(functions.array(*unsaid)))
        return self._change(fields, lacks, gone=False, step=_MAIN)

    def _lacking(self, row: Any) -> list[tuple[str, Any]]:
        """Names of columns that may be left out, each with whether it is."""
        if not self.rule.unavailable_value:
            return []
        given = ((f.name, left_out(row.getField(f.name), f.dataType, self.rule.unavailable_value)) for f in self.row)
        return [(name, condition) for name, condition in given if condition is not None]

    def _side(self, name: str) -> Any:
        """`before` or `after` as a row; null where there is none, or where it is none."""
        from pyspark.sql import functions

        if name not in self.events.columns:
            return functions.lit(None).cast(self.row)
        column = functions.col(name)
        if _struct(self.events, name) is None:
            return self._parsed(column.try_cast("string"), whole=name == "after")
        return as_type(column, self.events.schema[name].dataType, self.row, lossy=True)

    def _parsed(self, text: Any, *, whole: bool) -> Any:
        """JSON as a row. What does not fit its columns is null there; `whole`: then it is no row at all."""
        from pyspark.sql import functions
        from pyspark.sql.types import StringType, StructField, StructType

        if not whole:
            return functions.from_json(text, self.row)
        checked = StructType([*self.row.fields, StructField(_BAD, StringType())])
        made = functions.from_json(text, checked, {"columnNameOfCorruptRecord": _BAD})
        row = functions.struct(*(made.getField(field.name).alias(field.name) for field in self.row.fields))
        return functions.when(made.isNotNull() & made.getField(_BAD).isNull(), row)

    def _key(self) -> Any:
        """Kafka's key as a row: the columns it names; null where it names none."""
        from pyspark.sql import functions
        from pyspark.sql.types import StructType

        kind = _struct(self.events, columns.KEY_COLUMN)
        if kind is not None:
            return as_type(functions.col(columns.KEY_COLUMN), kind, self.row, lossy=True)
        text = functions.col(columns.KEY).try_cast("string")
        whole = functions.from_json(text, self.row)
        within = functions.from_json(text, StructType().add("payload", self.row)).getField("payload")
        return functions.coalesce(within, whole)

    def _change(self, fields: Mapping[str, Any], lacks: Any, *, gone: bool, step: int) -> Any:
        from pyspark.sql import functions

        row = [column.alias(name) for name, column in fields.items()]
        own = [functions.col(f"`{name}`") for name in self.kafka]
        event = [functions.struct(*(functions.col(name) for name in self.event)).alias(EVENT)] if self.event else []
        return functions.struct(
            functions.struct(*row, *own, *event).alias("seen"),
            functions.lit(gone).alias("gone"),
            functions.lit(step).alias("step"),
            lacks.alias("lacks"),
        )


def _names(names: Iterable[str]) -> Any:
    from pyspark.sql import functions

    return functions.array(*(functions.lit(name) for name in sorted(names)))


def _no_names() -> Any:
    from pyspark.sql import functions

    return functions.lit(None).cast("array<string>")


def _struct(records: Any, name: str) -> Any:
    """The type of a column that is a struct, None of any other."""
    kind = records.schema[name].dataType if name in records.columns else None
    return kind if hasattr(kind, "names") else None
