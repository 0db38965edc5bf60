"""Reads an Avro schema's text into a tree of types (Avro specification 1.12, "Schema Declaration").

Names of types stay references in the tree, so that a type that contains itself ends; :class:`Names` resolves them.
A logical type that does not fit its type, or is not known, is ignored, as the specification demands: what is left is
the type below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from converter.values.avro.logical import Logical, logical_of
from converter.values.model import SchemaTextError, is_unicode
from converter.values.schema_size import SchemaSize, check_name, place_within

#: Types within types, references followed.
NESTING_MAX: Final = 64
#: Characters of one schema's text; references count each for themselves.
TEXT_CHARS_MAX: Final = 8 * 1024 * 1024
#: Bytes of one value of a fixed type.
FIXED_BYTES_MAX: Final = 2**31 - 1


class Kind(StrEnum):
    """Avro's types, by the words of a schema; REFERENCE is a name of one."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    RECORD = "record"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    REFERENCE = "reference"


PRIMITIVES: Final = frozenset(list(Kind)[:8])
_BY_WORD: Final = {kind.value: kind for kind in Kind if kind not in (Kind.UNION, Kind.REFERENCE)} | {
    "error": Kind.RECORD
}


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    doc: str | None = None


@dataclass(slots=True, kw_only=True)
class AvroType:
    """One type of a schema; not changed any more once its schema is read.

    Attributes:
        name: full name of a named type, or what a reference refers to.
        size: bytes of a fixed type.
        symbols: of an enum.
        members: fields of a record.
        parts: branches of a union; the one type of an array's items or a map's values.
        logical: how the value is meant; None: as it is.
    """

    kind: Kind
    name: str = ""
    size: int = 0
    symbols: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    parts: tuple[AvroType, ...] = ()
    logical: Logical | None = None


def read_schema(text: str, references: Mapping[str, str]) -> tuple[AvroType, Names]:
    """The tree of a schema's text.

    Args:
        text: the schema's JSON text.
        references: texts of named types that the schema may use, by the names it uses.

    Raises:
        SchemaTextError: the text is no JSON, no schema, nests too deep, or uses a type that is defined nowhere.
    """
    names = Names(references=references)
    root = names.read(text, "schema")
    names.check()
    return root, names


@dataclass(slots=True, kw_only=True)
class Names:
    """The named types of one schema and of what it refers to."""

    references: Mapping[str, str]
    size: SchemaSize = field(default_factory=SchemaSize)
    _defined: dict[str, AvroType] = field(default_factory=dict)
    _used: dict[str, str] = field(default_factory=dict)  # name as used -> place of its first use
    _read: set[str] = field(default_factory=set)

    def resolve(self, node: AvroType) -> AvroType:
        """The type a reference refers to; any other type itself."""
        return self._defined[node.name] if node.kind is Kind.REFERENCE else node

    def read(self, text: str, place: str) -> AvroType:
        """Reads one text and defines its named types; a name may be used before it is known."""
        if len(text) > TEXT_CHARS_MAX:
            raise SchemaTextError(f"{place}: the text has {len(text)} characters, more than {TEXT_CHARS_MAX}")
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise SchemaTextError(f"{place}: no JSON: {error}") from error
        except RecursionError:
            raise SchemaTextError(f"{place}: nested deeper than {NESTING_MAX}") from None
        return self._type(parsed, "", place, 0)

    def check(self) -> None:
        """Finds a type for every name that was used, in the references where need be."""
        while missing := [name for name in self._used if name not in self._defined]:
            wanted = [name for name in missing if name in self.references and name not in self._read]
            # A reference's text may define more types than the one it is listed under.
            unread = [name for name in wanted or self.references if name not in self._read]
            if not unread:
                raise SchemaTextError(f"{self._used[missing[0]]}: the type {missing[0]!r} is defined nowhere")
            for name in unread:
                self._read.add(name)
                self.read(self.references[name], f"reference {name}")

    def _type(self, parsed: Any, namespace: str, place: str, depth: int) -> AvroType:
        if depth > NESTING_MAX:
            raise SchemaTextError(f"{place[:200]}: nested deeper than {NESTING_MAX}")
        if isinstance(parsed, str):
            return self._word(parsed, namespace, place)
        if isinstance(parsed, list):
            return self._union(parsed, namespace, place, depth)
        if not isinstance(parsed, dict):
            raise SchemaTextError(f"{place}: {parsed!r} is no type; a string, list or object is"[:500])
        word = parsed.get("type")
        if isinstance(word, dict | list):
            return self._type(word, namespace, place, depth + 1)
        kind = _BY_WORD.get(word) if isinstance(word, str) else None
        if kind is None:
            return self._word(_text(parsed, "type", place), namespace, place)
        if kind in PRIMITIVES:
            return AvroType(kind=kind, logical=logical_of(parsed, kind.value))
        if kind in (Kind.ARRAY, Kind.MAP):
            part = "items" if kind is Kind.ARRAY else "values"
            if part not in parsed:
                raise SchemaTextError(f"{place}: {kind} without {part!r}")
            return AvroType(kind=kind, parts=(self._type(parsed[part], namespace, f"{place}.{part}", depth + 1),))
        return self._named(parsed, kind, namespace, place, depth)

    def _word(self, word: str, namespace: str, place: str) -> AvroType:
        kind = _BY_WORD.get(word)
        if kind in PRIMITIVES:
            return AvroType(kind=kind)
        self.size.add(len(namespace) + len(word), place)
        name = word if "." in word or not namespace else f"{namespace}.{word}"
        if name not in self._defined and word in self._defined:
            name = word  # named outside of any namespace
        elif name not in self._defined and word in self.references and name not in self.references:
            name = word
        self._used.setdefault(name, place)
        return AvroType(kind=Kind.REFERENCE, name=name)

    def _union(self, parsed: list[Any], namespace: str, place: str, depth: int) -> AvroType:
        parts = tuple(self._type(one, namespace, f"{place}[{i}]", depth + 1) for i, one in enumerate(parsed))
        if not parts:
            raise SchemaTextError(f"{place}: a union without branches")
        kinds = [part.kind for part in parts]
        if Kind.UNION in kinds:
            raise SchemaTextError(f"{place}: a union directly in a union")
        keys = [(part.kind, part.name) for part in parts]
        if len(set(keys)) < len(keys):
            raise SchemaTextError(f"{place}: a union with one type twice")
        return AvroType(kind=Kind.UNION, parts=parts)

    def _named(self, parsed: dict[str, Any], kind: Kind, namespace: str, place: str, depth: int) -> AvroType:
        name = _text(parsed, "name", place)
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            own = parsed.get("namespace", namespace)
            namespace = own if isinstance(own, str) else ""
            self.size.add(len(namespace), place)
            name = f"{namespace}.{name}" if namespace else name
        check_name(name, place)
        node = AvroType(kind=kind, name=name)
        if name in self._defined:
            raise SchemaTextError(f"{place}: the type {name!r} is defined twice")
        self._defined[name] = node
        if kind is Kind.FIXED:
            size = parsed.get("size")
            if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
                raise SchemaTextError(f"{place}: fixed {name!r} needs a size from 0 to {FIXED_BYTES_MAX}, not {size!r}")
            node.size, node.logical = size, logical_of(parsed, kind.value, size)
        elif kind is Kind.ENUM:
            node.symbols = _symbols(parsed, f"{place}: enum {name[:80]!r}")
        else:
            node.members = self._members(parsed.get("fields"), namespace, f"{place}: record {name[:80]!r}", depth)
        # Every use is a reference, the definition too: whether a type is within itself is seen where it is used.
        self._used.setdefault(name, place)
        return AvroType(kind=Kind.REFERENCE, name=name)

    def _members(self, parsed: Any, namespace: str, place: str, depth: int) -> tuple[Member, ...]:
        if not isinstance(parsed, list) or not all(isinstance(one, dict) for one in parsed):
            raise SchemaTextError(f"{place} needs 'fields', a list of objects")
        members: dict[str, Member] = {}
        for one in parsed:
            name = _text(one, "name", place)
            check_name(name, place)
            if name in members:
                raise SchemaTextError(f"{place} has the field {name!r} twice")
            if "type" not in one:
                raise SchemaTextError(f"{place}: the field {name!r} has no type")
            aliases = one.get("aliases", [])
            names = aliases if isinstance(aliases, list) else []
            kept = tuple(alias for alias in names if isinstance(alias, str) and is_unicode(alias))
            doc = one.get("doc")
            kind = self._type(one["type"], namespace, place_within(place, f".{name[:80]}"), depth + 1)
            members[name] = Member(name, kind, kept, _unicode(doc) if isinstance(doc, str) else None)
        return tuple(members.values())


def _text(parsed: dict[str, Any], key: str, place: str) -> str:
    value = parsed.get(key)
    if not isinstance(value, str) or not value:
        raise SchemaTextError(f"{place}: {key!r} must be a text, not {value!r}"[:500])
    if not is_unicode(value):
        raise SchemaTextError(f"{place}: {key!r} is no Unicode text: {value!a}"[:500])
    return value


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _symbols(parsed: dict[str, Any], place: str) -> tuple[str, ...]:
    symbols = parsed.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise SchemaTextError(f"{place} needs 'symbols', a list of texts")
    if len(set(symbols)) < len(symbols):
        raise SchemaTextError(f"{place} has a symbol twice")
    if not all(map(is_unicode, symbols)):
        raise SchemaTextError(f"{place} has a symbol that is no Unicode text")
    for symbol in symbols:
        check_name(symbol, place)
    return tuple(symbols)
