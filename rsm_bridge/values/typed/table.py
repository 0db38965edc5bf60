"""The table of a typed topic as its decoders see it: its columns, and how each writer's become them.

Copies ask from worker threads and must not wait for a catalog that is slow or away, so what the table needs is done on
a thread of its own, within a deadline. They and the publisher get the same: routes, or ColumnsWaitError.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from converter.parquet.columns import ERROR, KEY, RAW_VALUE, VALUE
from converter.types import LargeWork, ValueFormat
from converter.values.allowance import Allowance
from converter.values.by_writer import Parted, Route, Writer, columns_of
from converter.values.model import (
    CELLS_UNLIMITED,
    Bound,
    Decoded,
    Decoder,
    Encoding,
    ValueProblem,
    error_text,
    misfits,
)
from converter.values.rows import TABLE, by_name, typed_rows
from iceberg_catalog.evolve.evolve import bind, bind_key, evolve, key_writer
from iceberg_catalog.evolve.names import SOURCES, Sources
from iceberg_catalog.evolve.types import key_columns, typed_row_schema, value_columns
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import stamped_format
from rsm_bridge.limits import CATALOG_AGAIN_SECONDS, EVOLUTION_SECONDS_MAX, REFUSED_MAX, WRITERS_COLUMNS_MAX
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.values.typed.decoder_shelf import column_count
from rsm_bridge.values.typed.inferred import Inferred, Part, as_properties, inferred_of
from rsm_bridge.values.typed.learning import Looks, few, fits_one, with_other_names
from rsm_bridge.values.typed.schemas import ColumnsWaitError, ValueSchemas

#: A part of the record and the type its decoder gives.
Wanted = tuple[Part, pa.StructType]
#: Decoders of writers; a text: why one has none.
Decoders = Mapping[tuple[Part, Writer], Decoder | str]
#: Makes the table take these columns and returns it; creates it if need be. What it cannot take, it leaves. The mapping
#: has properties that come with the columns; nothing is done where the table has others.
Evolve = Callable[[list[Wanted], Mapping[str, str]], Table]
#: What errors of keys begin with in `_kafka_error`.
OF_KEY: Final = "key_"
_NAMES: Mapping[Part, str] = {"value": RAW_VALUE, "key": KEY}
_TOO_WIDE: Final = error_text(
    ValueProblem.UNUSABLE_SCHEMA,
    f"schemas of these values have over {WRITERS_COLUMNS_MAX} columns together; rare ones are left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """One state of a table's columns.

    Attributes:
        uuid: of the table; one that is made anew gives its columns other field ids.
        schema: the table's.
        sources: under which names its columns are written.
        rows: what a data file of this state has.
        types: of the columns for values and for keys.
        value_format: what the table was made for.
        known: how decoders that were asked for are bound, as long as they live. Binding walks all columns: once is
            enough.
        misfits: why those that are not bound are not.
    """

    uuid: bytes
    schema: Schema
    sources: Sources
    rows: pa.Schema
    types: Mapping[Part, pa.StructType]
    value_format: ValueFormat
    known: WeakKeyDictionary[Decoder, tuple[Bound, ...] | None] = field(
        default_factory=WeakKeyDictionary, compare=False
    )
    misfits: WeakKeyDictionary[Decoder, str] = field(default_factory=WeakKeyDictionary, compare=False)

    @classmethod
    def of(cls, table: Table) -> TableColumns:
        """The present state.

        Raises:
            CatalogError: `schema_mismatch`: somebody else's properties.
        """
        schema = table.schema()
        sources = Sources.decode(table.properties.get(SOURCES))
        value_format = stamped_format(table)
        # The column `value` of text is one that every such table begins with.
        value = pa.struct([]) if value_format == "string" else value_columns(schema)
        types: dict[Part, pa.StructType] = {"value": value, "key": key_columns(schema)}
        uuid = str(table.metadata.table_uuid).encode()
        # A table without columns of values has the field ids that every one begins with.
        typed = any(kind.num_fields for kind in types.values())
        rows = typed_row_schema(schema).with_metadata({TABLE: uuid} if typed else None)
        return cls(uuid=uuid, schema=schema, sources=sources, rows=rows, types=types, value_format=value_format)

    def route(self, part: Part, decoder: Decoder) -> Route | None:
        """How a writer's values become these columns; None: they do not. A decoder is of one part alone."""
        try:
            bound = self.known[decoder]
        except KeyError:
            bound = self.known[decoder] = self._bound(part, decoder)
        return None if bound is None else Route(decoder if part == "value" else KeyDecoder(decoder), bound)

    def _bound(self, part: Part, decoder: Decoder) -> tuple[Bound, ...] | None:
        try:
            return (bind if part == "value" else bind_key)(self.schema, self.sources, decoder.type)
        except Exception:  # noqa: BLE001 - columns that cannot even be compared cost their writer's rows alone
            return None


@dataclass(frozen=True, slots=True)
class Given:
    """The values, and keys where they are typed, of some rows, by writer."""

    parts: Mapping[Part, Parted]

    def writers(self) -> list[tuple[Part, Writer]]:
        """All that occur, those of most rows first."""
        found = [(part, piece) for part, parted in self.parts.items() for piece in parted.parts]
        return [(part, piece.writer) for part, piece in sorted(found, key=lambda item: -len(item[1].rows))]


@dataclass(frozen=True, slots=True)
class Routes:
    """How rows become columns of one state of the table; a text: why a writer's cannot."""

    columns: TableColumns
    of: Mapping[tuple[Part, Writer], Route | str]

    def rows(self, plain: pa.RecordBatch, given: Given, cells_max: int, allowance: Allowance) -> pa.RecordBatch:
        """Rows in the schema of plain_rows() with their typed columns.

        Raises:
            CellsExceededError: they take more than `cells_max` cells; `allowance`, of their file, is to be given back.
        """
        typed: dict[str, pa.Array] = {}
        errors: dict[Part, pa.StringArray] = {}
        for part, parted in given.parts.items():
            mine = {writer: route for (whose, writer), route in self.of.items() if whose == part}
            decoded = columns_of(parted, mine, self.columns.types[part], cells_max, allowance)
            cells_max -= decoded.cells
            typed |= by_name(decoded.columns)
            errors[part] = decoded.errors
        # Values that are text have theirs from the conversion.
        said = errors.get("value", plain.column(ERROR) if ERROR in plain.schema.names else None)
        if "key" in errors:
            of_key = pc.binary_join_element_wise(OF_KEY, errors["key"], "")
            said = of_key if said is None else pc.coalesce(said, of_key)
        return typed_rows(plain, self.columns.rows, typed, said)


@dataclass(slots=True, kw_only=True)
class TypedTable:
    """The columns of one topic. May be used by several threads.

    schemas: of its values, and of its keys where they are typed. evolve: asks the catalog. executor: for that. large:
    entered by who publishes rows, while a single one is decoded that takes more memory than a piece of rows may.
    value_format: what the rows are before they have typed columns.
    """

    schemas: Mapping[Part, ValueSchemas]
    evolve: Evolve
    executor: Executor
    large: LargeWork = nullcontext
    value_format: ValueFormat = "raw"
    _columns: TableColumns | None = None
    _refused: dict[bytes, None] = field(default_factory=dict)
    _type_looks: defaultdict[Part, Looks] = field(default_factory=lambda: defaultdict(Looks))
    _name_looks: defaultdict[Part, Looks] = field(default_factory=lambda: defaultdict(Looks))
    _passed_over: bool = False  # values had more cells than are looked at
    _running: Future[TableColumns] | None = None
    _not_before: float = 0.0
    _failed: str = ""
    _lock: Lock = field(default_factory=Lock)

    def given(self, rows: pa.RecordBatch) -> Given:
        """Values and keys of rows in the schema of plain_rows(), by writer.

        Raises:
            ColumnsWaitError: the registry does not say what a schema is.
        """
        # Values that are text have their column already.
        wanted = {part: item for part, item in self.schemas.items() if part == "key" or VALUE not in rows.schema.names}
        for part, schemas in wanted.items():
            if schemas.to_infer:
                self._infer(part, rows.column(_NAMES[part]))
        return Given({part: schemas.parted(rows.column(_NAMES[part])) for part, schemas in wanted.items()})

    def saw(self, table: Table) -> None:
        """Tells what the topic's table is now.

        Once it was made anew, an older one restored, or a column dropped by an engine, nothing of it holds: the next
        rows ask for what they need.
        """
        known = self._columns
        if known is None:
            return
        uuid = str(table.metadata.table_uuid).encode()
        if known.uuid != uuid or set(known.schema.field_ids) - set(table.schema().field_ids):
            self._columns = None
            self._refused.clear()
        if known.uuid != uuid:
            for schemas in self.schemas.values():
                schemas.fix(None)  # it is properties of the table

    def applying(self, given: Given, columns: TableColumns | None = None) -> Given:
        """The parts that are to have columns: where the rule leaves it open, once a value, or key, has a schema.

        Args:
            given: values and keys.
            columns: of the table that takes the rows; None: as far as they are known here. What a copy leaves without
                columns for not knowing them gets them as it is published.

        Raises:
            ColumnsWaitError: the registry does not answer.
        """
        known = self._columns if columns is None else columns
        return Given({part: parted for part, parted in given.parts.items() if self._applies(part, parted, known)})

    def _applies(self, part: Part, parted: Parted, columns: TableColumns | None) -> bool:
        if not self.schemas[part].rule.left_open:
            return True
        if columns is not None and columns.types[part].num_fields:
            return True
        return any(not isinstance(self._decoder(part, piece.writer), str) for piece in parted.parts)

    def routes(self, given: Given, *, wait_seconds: float = EVOLUTION_SECONDS_MAX) -> Routes:
        """Routes of these rows, all into the same state of the table, which is made to take them.

        Raises:
            ColumnsWaitError: registry or catalog do not answer in time.
        """
        return self._routes(self._decoders(given), wait_seconds)

    def _routes(self, decoders: Decoders, wait_seconds: float = EVOLUTION_SECONDS_MAX) -> Routes:
        columns = self._columns
        if columns is None or self._lacking(columns, decoders):
            columns = self._evolved(decoders, wait_seconds)
        return _routes(columns, decoders)

    def routes_into(self, columns: TableColumns, given: Given) -> Routes | None:
        """Routes into an earlier state of the table; None when that lacks columns which the table has, or gets now.

        Raises:
            ColumnsWaitError: registry or catalog do not answer in time.
        """
        decoders = self._decoders(given)
        now, mine = self._routes(decoders), _routes(columns, decoders)
        lost = any(isinstance(mine.of[writer], str) and not isinstance(route, str) for writer, route in now.of.items())
        # Where no writer has columns, there is still what says why.
        lost = lost or (ERROR in now.columns.rows.names and ERROR not in columns.rows.names)
        return None if lost else mine

    def _decoders(self, given: Given) -> Decoders:
        """Of the most frequent writers: a producer must not decide how much memory they take together."""
        found: dict[tuple[Part, Writer], Decoder | str] = {}
        columns = 0
        for part, named in given.writers():
            for writer in self.schemas[part].versions(named):
                made = self._decoder(part, writer) if columns <= WRITERS_COLUMNS_MAX else _TOO_WIDE
                columns += 0 if isinstance(made, str) else column_count(made.type)
                found[part, writer] = made
        return found

    def _decoder(self, part: Part, writer: Writer) -> Decoder | str:
        return self.schemas[part].decoder(writer)

    def _lacking(self, columns: TableColumns, decoders: Decoders) -> list[Wanted]:
        """What the table has no columns for, and has not refused."""
        without = (
            (part, decoder.type)
            for (part, _), decoder in decoders.items()
            if not isinstance(decoder, str) and columns.route(part, decoder) is None
        )
        return [wanted for wanted in without if _digest(wanted) not in self._refused]

    def learned(self, given: Given, rows: pa.RecordBatch) -> bool:
        """Whether what values have will get other columns than it has here: the table's are others now, then.

        That is values that do not fit their columns, and names that the schema inferred for them does not say.

        Args:
            given: of the rows.
            rows: as :meth:`Routes.rows` gave them.

        Raises:
            ColumnsWaitError: registry or catalog do not answer in time.
        """
        return any(self._learned(part, parted, rows) for part, parted in given.parts.items())

    def _learned(self, part: Part, parted: Parted, rows: pa.RecordBatch) -> bool:
        rule = self.schemas[part].rule
        if not rule.learns:
            return False
        errors = rows.column(ERROR)
        if part == "key":
            errors = pc.replace_substring_regex(errors, f"^{OF_KEY}", "")
        dead, found = misfits(errors), False
        for piece in parted.parts if len(dead) else ():
            values = few(piece.values.filter(pa.array(np.isin(piece.rows, dead))))
            if len(values):
                found |= self._widened(part, piece.writer, values)
        return found or (rule.source == "inferred" and self._has_new_names(part, parted, rows))

    def _widened(self, part: Part, writer: Writer, values: pa.BinaryArray) -> bool:
        """Whether values that do not fit what there is fit a schema that there was not."""
        schemas = self.schemas[part]
        if schemas.rule.source != "inferred":
            fits = fits_one(self._decoder(part, replace(writer, version=1)), values)
            return bool(fits) and schemas.without_times(writer)

        def look() -> bool | None:
            self._passed_over = False
            return self._infer(part, values, lambda known: known.widened(values)) or (
                None if self._passed_over else False
            )

        return self._type_looks[part].look(look)

    def _has_new_names(self, part: Part, parted: Parted, rows: pa.RecordBatch) -> bool:
        columns = self._columns
        if columns is None or not parted.parts or self.schemas[part].inferred is None:
            return False
        which = np.zeros(rows.num_rows, dtype=np.bool_)
        for name in set(columns.types[part].names) & set(rows.schema.names):
            which |= with_other_names(rows.column(name), name)

        def look() -> bool:
            (piece,) = parted.parts
            values = few(piece.values.filter(pa.array(which[piece.rows])))
            return len(values) > 0 and self._infer(part, values, lambda known: known.more(values))

        return bool(which.any()) and self._name_looks[part].look(look)

    def _infer(
        self, part: Part, values: pa.BinaryArray, wanted: Callable[[Inferred], Inferred | None] | None = None
    ) -> bool:
        """Whether more is inferred of the part now than was known: the table's, else by what these values are.

        Args:
            part: value, or key.
            values: of which one at least shall fit.
            wanted: what becomes of what is known; None where the first schema is wanted.
        """
        schemas = self.schemas[part]
        before = schemas.inferred

        def ask() -> TableColumns:
            table = self.evolve([], {})
            known = inferred_of(part, table.properties)
            if known == before:
                made = schemas.infer(values) if known is None or wanted is None else wanted(known)
                if made is not None and made != known:
                    table = self._with_schemas(part, made, values, first=known is None)
            schemas.fix(inferred_of(part, table.properties))
            self._columns = TableColumns.of(table)
            return self._columns

        self._asked(lambda _: ask(), EVOLUTION_SECONDS_MAX)
        return schemas.inferred != before

    def _with_schemas(self, part: Part, made: Inferred, values: pa.BinaryArray, *, first: bool) -> Table:
        """The table with what was inferred, and its columns; without it where it would help nobody, or cannot be."""
        decoders = self.schemas[part].decoders_of(made)
        usable = [decoder for decoder in decoders if not isinstance(decoder, str)]
        wanted: list[Wanted] = [(part, decoder.type) for decoder in usable]
        fits = [] if first else [fits_one(decoder, values) for decoder in usable]
        self._passed_over = not any(fits) and None in fits
        # What has no decoder is not fixed: these rows say that there is no schema yet, others may give one.
        if len(usable) < len(decoders) or not (first or any(fits)):
            return self.evolve([], {})
        if first:
            return self.evolve(wanted, as_properties(part, made))
        # By a schema that the table refuses, all rows would be dead letters.
        columns = TableColumns.of(self.evolve(wanted, {}))
        bound = all(columns.route(part, decoder) is not None for decoder in usable)
        return self.evolve([], as_properties(part, made) if bound else {})

    def _evolved(self, decoders: Decoders, wait_seconds: float) -> TableColumns:
        return self._asked(lambda before: self._ask(decoders, before), wait_seconds)

    def _asked(self, ask: Callable[[Future[TableColumns] | None], TableColumns], wait_seconds: float) -> TableColumns:
        with self._lock:
            if time.monotonic() < self._not_before:
                raise ColumnsWaitError(self._failed)
            running = self._running = self.executor.submit(ask, self._running)
        try:
            return running.result(wait_seconds)
        except TimeoutError:
            raise ColumnsWaitError(f"the catalog has not changed the table within {wait_seconds:g} s") from None
        except Exception as error:
            said = f"the catalog did not change the table: {type(error).__name__}: {first_line(error)}"
            with self._lock:
                self._not_before, self._failed = time.monotonic() + CATALOG_AGAIN_SECONDS, said
            raise ColumnsWaitError(said) from error

    def _ask(self, decoders: Decoders, before: Future[TableColumns] | None) -> TableColumns:
        """One at a time; the one before may have done it."""
        if before is not None:
            before.exception()
        found = self._columns
        if found is None or self._lacking(found, decoders):
            wanted: list[Wanted] = [
                (part, known.type) for (part, _), known in decoders.items() if not isinstance(known, str)
            ]
            found = TableColumns.of(self.evolve(wanted, {}))
            for refused in self._lacking(found, decoders):
                self._refused[_digest(refused)] = None
            while len(self._refused) > REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            self._columns = found
        return found


def _digest(wanted: Wanted) -> bytes:
    part, kind = wanted
    return hashlib.blake2b(part.encode() + pa.schema(list(kind)).serialize(), digest_size=16).digest()


def untyped(_: Owner) -> TypedTable | None:
    """No topic's values have columns."""
    return None


def _routes(columns: TableColumns, decoders: Decoders) -> Routes:
    def route(part: Part, decoder: Decoder | str) -> Route | str:
        if isinstance(decoder, str):
            return decoder
        found = columns.route(part, decoder)
        if found is None and decoder not in columns.misfits:
            columns.misfits[decoder] = _misfits(columns, part, decoder.type)
        return found or error_text(ValueProblem.INCOMPATIBLE_SCHEMA, columns.misfits[decoder])

    found: dict[tuple[Part, Writer], Route | str] = {}
    for (part, writer), decoder in reversed([*decoders.items()]):  # the last version first
        made, after = route(part, decoder), found.get((part, replace(writer, version=writer.version + 1)))
        if isinstance(made, Route) and isinstance(after, Route):
            made = replace(made, otherwise=after)
        found[part, writer] = made
    return Routes(columns, found)


def _misfits(columns: TableColumns, part: Part, kind: pa.StructType) -> str:
    """Which fields the table's columns cannot take."""
    last = columns.schema.highest_field_id
    value, key = (kind, None) if part == "value" else (pa.struct([]), kind)
    try:
        wish = evolve(
            columns.schema,
            columns.sources,
            value,
            last_field_id=last,
            properties={},
            incompatible="dead-letter",
            key=key,
        )
    except Exception as error:  # noqa: BLE001 - as TableColumns.route()
        return f"{type(error).__name__}: {first_line(error)}"
    return "; ".join(wish.incompatible) or "the table has no columns for it: the catalog refused them"


@dataclass(frozen=True, slots=True)
class KeyDecoder:
    """A decoder whose columns are bound as iceberg_catalog.evolve.evolve.bind_key says."""

    inner: Decoder

    @property
    def type(self) -> pa.StructType:
        """Its only field is `_key`."""
        return key_writer(self.inner.type)

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        """See converter.values.model.Decoder."""
        made, kind = self.inner.decode(values, cells_max, allowance), self.type
        bare = kind.field(0).type != self.inner.type
        key = next(iter(by_name(made.columns).values())) if bare else made.columns
        columns = pa.StructArray.from_arrays([key], fields=list(kind), mask=made.columns.is_null())
        return Decoded(columns, made.errors, made.cells)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:  # noqa: ARG002
        """None: keys keep their bytes."""
        return None
