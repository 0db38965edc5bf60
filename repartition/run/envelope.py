"""Records to changes: what each record says about which row, before the rule's `select` sees it.

Without an envelope a record is one change. With `envelope: debezium` it is up to two: `before` deletes the row of the
old key, `after` is the new row. Which columns the events have depends on who decoded them and on what the first of
them were like (Debezium, "Data change events"):

* `before` is null in a snapshot and in every insert. Where JSON columns were inferred from such records it is text, and
  is read here by the columns of `after`; the other way round where a topic began with deletes.
* Connectors that write the schema into each event (`schemas.enable`) put the event into `payload`.
* A delete without `before` names its row by Kafka's key, which `_key` has, or is read here as JSON.
* Where both sides are text (MongoDB) an event is one row with the columns of the event, for a rule with a `select`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError
from repartition.run.by_name import as_type
from rsm_bridge.config.projections import ProjectionRule

#: Names of ours beside the user's columns; the prefix keeps them apart.
DELETED: Final = "__tierberg_deleted"
STEP: Final = "__tierberg_step"
KAFKA: Final = "__tierberg_kafka"
SEEN: Final = "__tierberg_seen"
_CHANGE: Final = "__tierberg_change"
_BAD: Final = "__tierberg_bad"
#: What `select` sees of an event beside its row, as one struct; `*` leaves it out.
EVENT: Final = "_event"
_OF_EVENT: Final = ("op", "ts_ms", "source")
_SIDES: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Changes of records.

    Attributes:
        frame: a row for each: KAFKA, the record's own columns; SEEN, what `select` sees; DELETED; STEP, its place in
            the record.
        names: what `*` stands for.
    """

    frame: Any
    names: tuple[str, ...]


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
        seen = functions.struct(*(functions.col(f"`{name}`") for name in records.columns))
        deleted = tombstone if rule.mode == "upsert" else functions.lit(False)
        frame = records.select(record, seen.alias(SEEN), deleted.alias(DELETED), functions.lit(0).alias(STEP))
        return Unwrapped(frame, tuple(records.columns))
    events = _lifted(records)
    if "op" not in events.columns or not set(_SIDES) & set(events.columns):
        raise RepartitionError("bad_rule", "envelope: debezium needs change events, with `op`, `before` and `after`")
    # Messages of the source's log have no row.
    events = events.where(~tombstone & ~functions.coalesce(functions.col("op") == "m", functions.lit(False)))
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
    found = functions.explode(_Event(events, row, kafka, event).changes()).alias(_CHANGE)
    told = events.select(record, found)
    frame = told.select(
        KAFKA,
        functions.col(f"{_CHANGE}.seen").alias(SEEN),
        functions.col(f"{_CHANGE}.gone").alias(DELETED),
        functions.col(f"{_CHANGE}.step").alias(STEP),
    )
    return Unwrapped(frame, (*row.names, *kafka))


def _lifted(records: Any) -> Any:
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
    seen = functions.struct(*(functions.col(f"`{name}`") for name in events.columns))
    deleted = functions.coalesce(functions.col("op") == "d", functions.lit(False))
    frame = events.select(record, seen.alias(SEEN), deleted.alias(DELETED), functions.lit(1).alias(STEP))
    return Unwrapped(frame, tuple(events.columns))


@dataclass(frozen=True, slots=True)
class _Event:
    """The columns of an event. `row`: the type of its rows. `kafka`: names of Kafka's columns. `event`: of its own."""

    events: Any
    row: Any
    kafka: list[str]
    event: tuple[str, ...]

    def changes(self) -> Any:
        """An array of what it changes; never empty."""
        from pyspark.sql import functions

        gone = functions.coalesce(functions.col("op") == "d", functions.lit(False))
        before, after = self._side("before"), self._side("after")
        key = self._key()
        sides = [
            # A key that changes leaves its old row: `before` deletes first, and where it has the same key `after` is
            # next.
            functions.when(before.isNotNull(), self._change(before, gone=True, step=0)),
            functions.when(gone & before.isNull() & key.isNotNull(), self._change(key, gone=True, step=0)),
            functions.when(~gone & after.isNotNull(), self._change(after, gone=False, step=1)),
        ]
        found = functions.array_compact(functions.array(*sides))
        # What has neither side, or did not decode, goes on as a row of nulls, and is a dead letter for its key.
        nothing = functions.array(self._change(functions.lit(None).cast(self.row), gone=True, step=0))
        return functions.when(functions.size(found) == 0, nothing).otherwise(found)

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

    def _change(self, row: Any, *, gone: bool, step: int) -> Any:
        from pyspark.sql import functions

        fields = [row.getField(field.name).alias(field.name) for field in self.row.fields]
        own = [functions.col(f"`{name}`") for name in self.kafka]
        event = [functions.struct(*(functions.col(name) for name in self.event)).alias(EVENT)] if self.event else []
        return functions.struct(
            functions.struct(*fields, *own, *event).alias("seen"),
            functions.lit(gone).alias("gone"),
            functions.lit(step).alias("step"),
        )


def _struct(records: Any, name: str) -> Any:
    """The type of a column that is a struct, None of any other."""
    kind = records.schema[name].dataType if name in records.columns else None
    return kind if hasattr(kind, "names") else None
