"""Which schema a topic's values have, and the decoder for it.

What a decoder was made of never changes: it is kept while there is room (decoder_shelf.py). Schemas that the registry
does not have, or that cannot be used, are told to the rows as their error; a registry that does not answer makes them
wait, and one that answers something else does so for a time (schema_waits.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from converter.errors import TierbergError
from converter.values.by_writer import Parted, Writer, parted, parted_by_id
from converter.values.model import Decoder, NoMessageError, SchemaTextError, ValueProblem, error_text
from converter.values.text import TextDecoder
from rsm_bridge.limits import COMPILER_TRIES_MAX, INFERRED_VALUES_MAX, REGISTRY_WORKERS, TIMELESS_MAX
from rsm_bridge.values.registry.errors import (
    RegistryUnavailableError,
    SchemaLookupError,
    SchemaRefusedError,
    SchemaUnknownError,
    SchemaUnusableError,
)
from rsm_bridge.values.registry.schemas import RegisteredSchema, SchemaKind
from rsm_bridge.values.typed.decoder_shelf import DecoderShelf, decoder_bytes
from rsm_bridge.values.typed.inferred import Inferred
from rsm_bridge.values.typed.schema_waits import OF_RULE, SchemaWaits

if TYPE_CHECKING:
    from converter.values.protobuf.schema import SchemaFiles

SchemaSource = Literal["wire", "latest", "inline", "inferred", "text"]


#: What a compiled Protobuf schema takes, with its descriptors, per byte of its text.
_COMPILED_PER_BYTE: Final = 16
_TEXT: Final = TextDecoder()
_NOTHING_TO_INFER = error_text(ValueProblem.UNDECODABLE, "no value so far is a JSON object, so there is no schema yet")


class ColumnsWaitError(TierbergError):
    """Rows cannot have their columns now, and may have them later. The message says why and what to do."""

    kind = "unavailable"


class Registry(Protocol):
    """What is asked of rsm_bridge.values.registry.registry.SchemaRegistry."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id."""
        ...

    def ask(self, schema_ids: Iterable[int]) -> None:
        """These are about to be asked for."""
        ...

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRule:
    """What a topic's rule says of its values, or of its keys.

    Attributes:
        kind: of the schemas; None: whatever the registry has for the ids that values carry.
        source: `wire`: values carry the registry's ids; `latest`: the latest version of `subject`, values carry no id;
            `inline`: `text`; `inferred`: from the topic's first values, then fixed in the table's properties; `text`:
            none is needed, the bytes are UTF-8.
        message: Protobuf, not `wire`: full name of the message; empty: the first one of the file.
        learns: whether values that do not fit their columns get others.
    """

    kind: SchemaKind | None
    source: SchemaSource
    subject: str = ""
    text: str = ""
    message: str = ""
    learns: bool = False

    @property
    def left_open(self) -> bool:
        """Whether there are columns only for what turns out to have a schema."""
        return self.source == "wire" and self.kind is None


@dataclass(slots=True, kw_only=True)
class ValueSchemas:
    """Decoders of one topic's values, or keys. May be used by several threads."""

    rule: SchemaRule
    registry: Registry | None
    shelf: DecoderShelf = field(default_factory=DecoderShelf)
    waits: SchemaWaits = field(default_factory=SchemaWaits)
    _owner: object = field(default_factory=object)
    _inferred: Inferred | None = None
    _texts: tuple[str, ...] = ()
    _timeless: set[Writer] = field(default_factory=set)
    _unfinished: Counter[int] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def parted(self, values: pa.BinaryArray) -> Parted:
        """Values by writer.

        Raises:
            ColumnsWaitError: the registry does not say what a schema is.
        """
        if self.rule.source == "wire":
            return parted_by_id(values, self._protobuf_of)
        if self.to_infer:
            return Parted(len(values), (), ((np.flatnonzero(values.is_valid()), _NOTHING_TO_INFER),))
        return parted(values)

    @property
    def to_infer(self) -> bool:
        """Whether the schema is still to be inferred, or read from the table."""
        return self.rule.source == "inferred" and self._inferred is None

    @property
    def inferred(self) -> Inferred | None:
        """What was inferred so far."""
        return self._inferred

    def infer(self, values: pa.BinaryArray) -> Inferred | None:
        """A schema for these values; None when there is no JSON object among them."""
        from converter.values.json.schema.infer import infer_schema

        text = infer_schema(values[:INFERRED_VALUES_MAX], empty=not self.rule.learns)
        return None if text is None else Inferred(text)

    def decoders_of(self, found: Inferred) -> list[Decoder | str]:
        """Decoders of its schemas; a text: why there is none."""
        apart = ValueSchemas(rule=self.rule, registry=None)
        apart.fix(found)
        return [apart.decoder(writer) for writer in apart.versions(Writer())]

    def fix(self, found: Inferred | None) -> None:
        """What was inferred, here or by another bridge."""
        self._inferred, self._texts = found, () if found is None else found.texts()

    def versions(self, writer: Writer) -> list[Writer]:
        """The ways in which its values are read, that of most of them first."""
        if self.rule.source == "inferred":
            return [replace(writer, version=number) for number in range(max(1, len(self._texts)))]
        return [writer, replace(writer, version=1)] if writer in self._timeless else [writer]

    def without_times(self, writer: Writer) -> bool:
        """From now on values of a declared JSON schema that do not fit have their times as text; False: nothing new.

        Raises:
            ColumnsWaitError: the registry does not answer.
        """
        if self.rule.source == "inferred" or writer in self._timeless or len(self._timeless) >= TIMELESS_MAX:
            return False
        if isinstance(self.decoder(replace(writer, version=1)), str):
            return False
        self._timeless.add(writer)
        return True

    def decoder(self, writer: Writer) -> Decoder | str:
        """The writer's decoder, or why there is none, as `_kafka_error` says it.

        Raises:
            ColumnsWaitError: the registry does not answer.
        """
        if self.rule.source == "text":
            return _TEXT
        try:
            schema = self._schema(writer)
        except SchemaUnknownError as error:
            return error_text(ValueProblem.UNKNOWN_SCHEMA, str(error))
        except SchemaUnusableError as error:
            return error_text(ValueProblem.UNUSABLE_SCHEMA, str(error))
        key = (*_identity(schema), writer.message, writer.version)
        made: Decoder | str | None = self.shelf.get(self._owner, key)
        if made is None:
            try:
                made = self._make(schema, writer)
            except NoMessageError as error:  # not kept: those that a schema has not would displace those it has
                return error_text(ValueProblem.UNUSABLE_SCHEMA, str(error))
            # Decoders of Protobuf share what was compiled, which is kept apart.
            text = "" if schema.kind == "protobuf" else schema.text + "".join(schema.references.values())
            size = len(made) if isinstance(made, str) else decoder_bytes(made.type, text)
            self.shelf.put(self._owner, key, made, size)
        return made

    def _schema(self, writer: Writer) -> RegisteredSchema:
        found = self._declared(writer)
        if not writer.version or self.rule.source == "inferred":
            return found
        from converter.values.json.schema.widen import schema_without_times

        if found.kind != "json" or (text := schema_without_times(found.text)) is None:
            raise SchemaUnusableError("it has no points in time")
        return replace(found, text=text)

    def _declared(self, writer: Writer) -> RegisteredSchema:
        rule = self.rule
        if rule.source in {"inline", "inferred"} and rule.kind is not None:
            texts = self._texts or (rule.text,)
            number = writer.version if rule.source == "inferred" else 0
            if number >= len(texts):  # its table was made anew in this moment
                raise SchemaUnusableError("the table has no such schema any more")
            return RegisteredSchema(-1, rule.kind, texts[number], {})
        if self.registry is None:
            raise ColumnsWaitError("the rule takes schemas from a registry and none is configured: schema_registry.url")
        registry = self.registry
        try:
            if rule.source == "latest":
                return self._asked(OF_RULE, lambda: registry.latest(rule.subject))
            return self._by_id(writer.schema_id)
        except RegistryUnavailableError as error:
            raise ColumnsWaitError(str(error)) from error

    def _by_id(self, schema_id: int) -> RegisteredSchema:
        registry = self.registry
        if registry is None:
            raise ColumnsWaitError("values carry schema ids and no registry is configured: schema_registry.url")
        return self._asked(schema_id, lambda: registry.by_id(schema_id))

    def _asked(self, schema_id: int, ask: Callable[[], RegisteredSchema]) -> RegisteredSchema:
        try:
            found = ask()
        except RegistryUnavailableError as error:
            self.waits.require_hope(schema_id, error)
            raise
        except SchemaLookupError:
            self.waits.ended(schema_id)
            raise
        self.waits.ended(schema_id)
        return found

    def _protobuf_of(self, schema_ids: Sequence[int]) -> list[int]:
        found: list[int] = []
        refused: SchemaRefusedError | None = None
        for number, schema_id in enumerate(schema_ids, start=1):
            if self.registry is not None:
                self.registry.ask(schema_ids[number : number + REGISTRY_WORKERS])
            try:
                if self._is_protobuf(schema_id):
                    found.append(schema_id)
            except SchemaRefusedError as error:
                refused = refused or error  # the others are asked for all the same: their waits begin now, too
        if refused is not None:
            raise ColumnsWaitError(str(refused)) from refused
        return found

    def _is_protobuf(self, schema_id: int) -> bool:
        try:
            return self._by_id(schema_id).kind == "protobuf"
        except SchemaRefusedError:
            raise
        except RegistryUnavailableError as error:
            raise ColumnsWaitError(str(error)) from error
        except (SchemaUnknownError, SchemaUnusableError):
            return False  # decoder() says so to the rows

    def _make(self, schema: RegisteredSchema, writer: Writer) -> Decoder | str:
        wanted = self.rule.kind
        if wanted is not None and schema.kind != wanted:
            text = f"schema id {schema.id} is {schema.kind}, the topic's rule says {wanted}"
            return error_text(ValueProblem.UNUSABLE_SCHEMA, text)
        try:
            if schema.kind == "protobuf":
                return _protobuf(self._compiled(schema), writer.message or self.rule.message)
            return _MAKERS[schema.kind](schema)
        except NoMessageError:
            raise
        except SchemaTextError as error:
            return error_text(ValueProblem.UNUSABLE_SCHEMA, str(error))
        except (KeyboardInterrupt, SystemExit, ColumnsWaitError):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this writer's rows (Rust panics, too)
            said = f"no decoder can be made of it: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return error_text(ValueProblem.UNUSABLE_SCHEMA, said)

    def _compiled(self, schema: RegisteredSchema) -> SchemaFiles:
        """The schema, compiled once, however many of its messages values name.

        Raises:
            SchemaTextError: it does not compile, or did not in COMPILER_TRIES_MAX tries.
            ColumnsWaitError: the compiler did not come to an end.
        """
        from converter.values.protobuf.schema import SchemaFiles
        from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema

        key = _identity(schema)
        known: SchemaFiles | str | None = self.shelf.get(self._owner, key)
        if known is None:
            try:
                known = SchemaFiles(protobuf_schema(schema.text, schema.references))
            except SchemaTextError as error:
                known = str(error)
            except OSError as error:  # the compiler's process; a deadline that passed, too
                known = f"schema id {schema.id} could not be compiled: {error}"
                if not isinstance(error, ChildProcessError | TimeoutError) or self._tries_left(schema.id):
                    raise ColumnsWaitError(known) from error
                known = f"{known}; tried {COMPILER_TRIES_MAX} times"
            size = len(schema.text) + sum(len(text) for text in schema.references.values())
            self.shelf.put(self._owner, key, known, _COMPILED_PER_BYTE * size)
        if isinstance(known, str):
            raise SchemaTextError(known)
        return known

    def _tries_left(self, schema_id: int) -> bool:
        """Counts one more time that the compiler did not come to an end with a schema."""
        with self._lock:
            self._unfinished[schema_id] += 1
            return self._unfinished[schema_id] < COMPILER_TRIES_MAX


def _identity(schema: RegisteredSchema) -> tuple[int, str]:
    """By its id; without one, by its text."""
    return schema.id, schema.text if schema.id < 0 else ""


def _avro(schema: RegisteredSchema) -> Decoder:
    from converter.values.avro.decoder import avro_decoder

    return avro_decoder(schema.text, schema.references)


def _json(schema: RegisteredSchema) -> Decoder:
    from converter.values.json.decoder import json_decoder

    return json_decoder(schema.text)


def _protobuf(files: SchemaFiles, message: str | tuple[int, ...]) -> Decoder:
    from converter.values.protobuf.decoder import protobuf_decoder

    return protobuf_decoder(files, message or (0,))


_MAKERS: dict[SchemaKind, Callable[[RegisteredSchema], Decoder]] = {"avro": _avro, "json": _json}
