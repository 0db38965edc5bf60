"""Records to changes: what each record says about which row, before the rule's `select` sees it.

Without an envelope a record is a row. With `envelope: debezium` `after` is, and `before` is the row that it was. Which
columns the events have depends on who decoded them and on what the first of them were like (Debezium, "Data change
events"):

* `before` is null in a snapshot and in every insert. Where JSON columns were inferred from such records it is text, and
  is read here by the columns of `after`; the other way round where a topic began with deletes.
* Connectors that write the schema into each event (`schemas.enable`) put the event into `payload`.
* A delete without `before` names its row by Kafka's key, which `_key` has, or is read here as JSON.
* Where both sides are text (MongoDB) an event is one row with the columns of the event, for a rule with a `select`.
* Messages of the source's log (`op: m`) have no row, and truncations (`op: t`) are for truncation.py.

With `explode` each item of a list is a row instead: :func:`itemized` comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from converter.parquet import columns
from repartition.changes.by_name import as_type, type_within
from repartition.changes.unavailable import left_out
from repartition.errors import RepartitionError
from rsm_bridge.config.layout_terms import quoted_path
from rsm_bridge.config.projections import ProjectionRule

#: Names of ours beside the user's columns; the prefix keeps them apart, and no column of a record keeps it.
OURS: Final = "__tierberg_"
DELETED: Final = "__tierberg_deleted"
KAFKA: Final = "__tierberg_kafka"
SEEN: Final = "__tierberg_seen"
WAS: Final = "__tierberg_was"
FAULT: Final = "__tierberg_fault"
LEFT_OUT: Final = "__tierberg_left_out"
_BAD: Final = "__tierberg_bad"
_BEFORE: Final = "__tierberg_before"
_AFTER: Final = "__tierberg_after"
_NOW: Final = "__tierberg_now"
#: What `select` sees of an event beside its row, as one struct; `*` leaves it out.
EVENT: Final = "_event"
#: With `explode`: an item, and its place in its list, from 0.
ITEM: Final = "_item"
POSITION: Final = "_item_position"
_OF_EVENT: Final = ("op", "ts_ms", "source")
_SIDES: Final = ("before", "after")
#: Of messages that have no row, and of events that have one: created, updated, read by a snapshot, deleted.
_ROWLESS: Final = ("m", "t")
_OPS: Final = ("c", "u", "r", "d")
_NO_ROW: Final = "a change event without a row in after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """Changes of records.

    Attributes:
        frame: a row for each record: KAFKA, the record's own columns; SEEN, what `select` sees; DELETED; LEFT_OUT,
            columns of SEEN whose values it does not say, as an array, empty or null for none; FAULT, why it is no
            change, null where it is one; with `moves` WAS, the same as SEEN of the row as it was, null where it does
            not say it.
        names: what `*` stands for.
        may_lack: all columns that LEFT_OUT may have.
        moves: an update may be of a row that had another key.
    """

    frame: Any
    names: tuple[str, ...]
    may_lack: frozenset[str] = frozenset()
    moves: bool = False


def unwrapped(records: Any, rule: ProjectionRule) -> Unwrapped:
    """The changes that records are.

    Args:
        records: a frame over the topic's table.
        rule: with an `envelope`.

    Raises:
        RepartitionError: `bad_rule` where the records are no such events.
    """
    from pyspark.sql import functions

    records = _without_ours(records)
    of_record = (POSITION,) if rule.explode else ()
    kafka = [name for name in records.columns if name.startswith("_kafka_") or name in of_record]
    record = functions.struct(*(functions.col(f"`{name}`") for name in kafka)).alias(KAFKA)
    tombstone = functions.col(columns.VALUE_SIZE).isNull()
    if rule.envelope == "none":
        deleted = tombstone if rule.mode == "upsert" else functions.lit(False)
        lacking = frozenset(records.columns) - frozenset(kafka) if rule.soft_deletes else frozenset()
        return _as_they_are(records, record, deleted, lacking)
    events = _without_ours(lifted(records))
    if "op" not in events.columns or not set(_SIDES) & set(events.columns):
        raise RepartitionError("bad_rule", "envelope: debezium needs change events, with `op`, `before` and `after`")
    events = events.where(~tombstone & ~functions.coalesce(functions.col("op").isin(*_ROWLESS), functions.lit(False)))
    row = next((kind for kind in (_struct(events, name) for name in reversed(_SIDES)) if kind is not None), None)
    if row is None:
        return _as_text(events, record, rule)
    # Nothing else needs it, and it is as many columns again.
    wanted = any(EVENT in text for text in (*rule.select, rule.where or ""))
    event = tuple(name for name in _OF_EVENT if wanted and name in events.columns)
    seen = _apart(row.names, {*kafka, *([EVENT] if event else [])})
    within = _Event(events=events, row=row, seen=seen, kafka=kafka, event=event, rule=rule)
    return Unwrapped(
        frame=within.changes(record), names=(*seen.values(), *kafka), may_lack=within.may_lack(), moves=True
    )


def itemized(records: Any, rule: ProjectionRule) -> Any:
    """With `explode`: a row for each item, with ITEM and POSITION, without the column that has the items at its top.

    A record that has not decoded is one row, of no item. A column of the record that is called as one of the two, in
    whatever case, is `x__item` then.

    Raises:
        RepartitionError: `bad_rule` where the column is missing, or is no list and no map.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType

    if rule.explode is None:
        return records
    kind = type_within(records.schema, rule.explode)
    if kind is None:
        raise RepartitionError("bad_rule", f"explode: the topic's table has no column {rule.explode}")
    if not isinstance(kind, ArrayType | MapType):
        said = f"explode: {rule.explode} is a column of type {kind.simpleString()}, and only lists and maps have items"
        raise RepartitionError("bad_rule", said)
    items = functions.col(quoted_path(rule.explode))
    items = functions.map_entries(items) if isinstance(kind, MapType) else items
    error = functions.col(columns.ERROR) if columns.ERROR in records.columns else functions.lit(None)
    seen = _apart((name for name in records.columns if name != rule.explode), (ITEM, POSITION))
    kept = [functions.col(f"`{name}`").alias(given) for name, given in seen.items()]
    # Outer, for the sake of what has not decoded; an item may be null itself.
    each = functions.posexplode_outer(functions.when(error.isNull(), items)).alias(POSITION, ITEM)
    return records.select(*kept, each).where(functions.col(POSITION).isNotNull() | error.isNotNull())


def _apart(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Columns of a row by what `select` sees them as: `x_name`, as in the topic's table, where the name is taken.

    Spark's names have no case. Those that begin as OURS are taken.
    """
    found: dict[str, str] = {}
    names, reserved = list(names), {name.lower() for name in taken}
    known = {*(name.lower() for name in names), *reserved}
    for name in names:
        given = name
        if name.lower() in reserved or name.lower().startswith(OURS):
            given = f"x_{name}"
            while given.lower() in known:
                given = f"x_{given}"
            known.add(given.lower())
        found[name] = given
    return found


def _without_ours(frame: Any) -> Any:
    """Whoever writes records may call a member as a column of ours."""
    from pyspark.sql import functions

    if not any(name.lower().startswith(OURS) for name in frame.columns):
        return frame
    seen = _apart(frame.columns, ())
    return frame.select(*(functions.col(f"`{name}`").alias(given) for name, given in seen.items()))


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
    return _as_they_are(events, record, deleted, lacking, fault=_no_op())


def _as_they_are(
    records: Any, record: Any, deleted: Any, lacking: frozenset[str], *, fault: Any | None = None
) -> Unwrapped:
    """One change a record, with its columns. `lacking`: those of which a delete says nothing."""
    from pyspark.sql import functions

    seen = functions.struct(*(functions.col(f"`{name}`") for name in records.columns))
    nothing = functions.when(deleted, _names(lacking)) if lacking else _no_names()
    fault = functions.lit(None).cast("string") if fault is None else fault
    beside = [deleted.alias(DELETED), nothing.alias(LEFT_OUT), fault.alias(FAULT)]
    frame = records.select(record, seen.alias(SEEN), *beside)
    return Unwrapped(frame=frame, names=tuple(records.columns), may_lack=lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """The columns of an event.

    Attributes:
        row: the type of its rows; seen: what their columns are seen as.
        kafka: names of Kafka's columns; event: of the event's own.
    """

    events: Any
    row: Any
    seen: Mapping[str, str]
    kafka: list[str]
    event: tuple[str, ...]
    rule: ProjectionRule

    def may_lack(self) -> frozenset[str]:
        """Columns of a row that some change may not say."""
        if self.rule.soft_deletes:
            return frozenset(self.seen.values())
        return frozenset(self.seen[name] for name, _ in self._lacking(self._side("after")))

    def changes(self, record: Any) -> Any:
        """The frame of :class:`Unwrapped`. `record`: KAFKA."""
        from pyspark.sql import functions

        gone = self._deletes()
        sided = self.events.withColumns({_BEFORE: self._side("before"), _AFTER: self._side("after")})
        before, after, now = (functions.col(name) for name in (_BEFORE, _AFTER, _NOW))
        # A column of its own, for it is read many times over. Kafka's key tells the row where a delete says nothing.
        of_key = functions.when(gone & before.isNull(), self._key())
        sided = sided.withColumn(_NOW, functions.when(gone, functions.coalesce(before, of_key)).otherwise(after))
        fields, unsaid = self._said(now, before)
        # There was no row before one that is made, so that nothing can be kept.
        lacks = functions.when(functions.col("op") == "u", unsaid) if unsaid is not None else _no_names()
        if self.rule.soft_deletes:
            lacks = functions.when(gone, _names(self.seen.values())).otherwise(lacks)
        was = {name: before.getField(name) for name in self.row.names}
        was |= {name: functions.when(~missing, was[name]) for name, missing in self._lacking(before)}
        return sided.select(
            record,
            self._seen(fields).alias(SEEN),
            functions.when(before.isNotNull() & ~gone, self._seen(was)).alias(WAS),
            gone.alias(DELETED),
            lacks.alias(LEFT_OUT),
            _no_op().when(~gone & after.isNull(), _NO_ROW).alias(FAULT),
        )

    @staticmethod
    def _deletes() -> Any:
        from pyspark.sql import functions

        return functions.coalesce(functions.col("op") == "d", functions.lit(False))

    def _said(self, row: Any, before: Any) -> tuple[dict[str, Any], Any]:
        """Columns of a row, and which of them it does not say; None: it says all. `before` may know one."""
        from pyspark.sql import functions

        fields = {name: row.getField(name) for name in self.row.names}
        lacking, was = dict(self._lacking(row)), dict(self._lacking(before))
        for name, missing in lacking.items():
            old = functions.when(~was[name], before.getField(name))  # null where it has none, too
            fields[name] = functions.when(missing, old).otherwise(fields[name])
        unsaid = [
            functions.when(missing & fields[name].isNull(), functions.lit(self.seen[name]))
            for name, missing in lacking.items()
        ]
        return fields, functions.array_compact(functions.array(*unsaid)) if unsaid else None

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

    def _seen(self, fields: Mapping[str, Any]) -> Any:
        """What `select` sees of a row."""
        from pyspark.sql import functions

        row = [column.alias(self.seen[name]) for name, column in fields.items()]
        own = [functions.col(f"`{name}`") for name in self.kafka]
        event = [functions.struct(*(functions.col(name) for name in self.event)).alias(EVENT)] if self.event else []
        return functions.struct(*row, *own, *event)


def _no_op() -> Any:
    """Why an event says nothing that we know."""
    from pyspark.sql import functions

    op = functions.col("op")
    unknown = functions.concat(functions.lit("no change event that is known: its op is "), op.cast("string"))
    return functions.when(op.isNull(), "no change event: it has no op").when(~op.isin(*_OPS), unknown)


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
