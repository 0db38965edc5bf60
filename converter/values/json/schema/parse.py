"""JSON Schema (draft 4 to 2020-12, what registries hold) into nodes: docs/types.md says which keyword does what.

Only what decides about types is looked at. Whatever has no single type becomes TEXT, which loses nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from converter.values.json import nodes
from converter.values.json.nodes import Node, leaf, list_of, map_of, struct_of
from converter.values.model import SchemaTextError, is_unicode
from converter.values.schema_size import PLACE_CHARS_MAX, SchemaSize, place_within

SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
#: Columns, elements, keys and values together.
NODES_MAX: Final = 10_000
#: Deeper parts of a schema become TEXT.
SCHEMA_DEPTH_MAX: Final = 32
#: References and single alternatives followed at one place; more is a circle.
_HOPS_MAX: Final = 64
_INT64: Final = range(-(2**63), 2**63)
_FORMATS: Final = {"date-time": nodes.DATETIME, "date": nodes.DATE}
_SCALARS: Final = {"number": nodes.NUMBER, "boolean": nodes.BOOLEAN}
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})

Schema = dict[str, Any]
_NO_MEMBERS: Final[Schema] = {}
#: A keyword of ours: an object that is to have members, of which none is known yet.
NAMES_LATER: Final = "x-tierberg-names-later"
#: A keyword of ours: JSON text, in another column than strings.
JSON_TEXT: Final = "x-tierberg-json-text"


def parse_schema(text: str) -> Node:
    """The root node of a schema's text.

    Raises:
        SchemaTextError: no JSON, too large, a keyword of a wrong form, a $ref out of the text or in a circle.
    """
    if len(text) > SCHEMA_BYTES_MAX:
        raise SchemaTextError(f"#: the schema has {len(text)} characters, more than {SCHEMA_BYTES_MAX}")
    try:
        document = json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise SchemaTextError("#: the schema is nested too deeply") from None
    except ValueError as error:
        raise SchemaTextError(f"#: the schema is no JSON: {error}") from None
    return _Reader(document).node(document, "", "#", ())


def _distinct(pairs: list[tuple[str, Any]]) -> Schema:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has two members of one name")
    return members


class _Reader:
    """Turns the parts of one schema document into nodes."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._count = 0
        self._size = SchemaSize()
        # What was found in subschemas and lists of them, by identity: many places may refer to one, however long.
        self._types: dict[int, str] = {}
        self._checked: set[int] = set()
        self._left: dict[int, int | None] = {}

    def node(self, schema: Any, name: str, place: str, parents: tuple[int, ...]) -> Node:
        """The node of one subschema; `parents`: identities of the object schemas it lies in."""
        self._count += 1
        if self._count > NODES_MAX:
            raise SchemaTextError(f"{place}: more than {NODES_MAX} columns")
        schema, place = self._resolve(schema, place)
        if isinstance(schema, bool) or len(parents) >= SCHEMA_DEPTH_MAX or id(schema) in parents:
            return leaf(nodes.TEXT, name)
        doc = schema.get("description", "")
        doc = doc if isinstance(doc, str) else ""
        self._size.add(len(name) + len(doc), place)
        if id(schema) not in self._types:
            self._types[id(schema)] = _single_type(schema, place)
        kind = self._types[id(schema)]
        if schema.get(JSON_TEXT) is True:
            return replace(leaf(nodes.TEXT, name, doc), beside=True)
        inner = (*parents, id(schema))
        if kind == "object":
            return self._object(schema, name, doc, place, inner)
        if kind == "array":
            items = schema.get("items")
            if not (isinstance(items, dict) or items is True) or "prefixItems" in schema:
                return leaf(nodes.TEXT, name, doc)
            return list_of(self.node(items, "", f"{place}/items", inner), name, doc)
        if kind == "string":
            return leaf(_FORMATS.get(_word(schema, "format"), nodes.STRING), name, doc)
        if kind == "integer":
            return leaf(_integer(schema, place), name, doc)
        return leaf(_SCALARS.get(kind, nodes.TEXT), name, doc)

    def _object(self, schema: Schema, name: str, doc: str, place: str, parents: tuple[int, ...]) -> Node:
        properties = self._members(schema, "properties", place)
        patterns = self._members(schema, "patternProperties", place)
        additional = schema.get("additionalProperties", True)
        if not isinstance(additional, bool | dict):
            raise SchemaTextError(f"{place}/additionalProperties: neither a schema nor true or false")
        if properties or schema.get(NAMES_LATER) is True:
            children = tuple(
                self.node(part, key, _within(place, "properties", key), parents) for key, part in properties.items()
            )
            return struct_of(children, name, doc, additional=additional is not False or bool(patterns))
        if isinstance(additional, dict) and not patterns:
            return map_of(self.node(additional, "", f"{place}/additionalProperties", parents), name, doc)
        if additional is False and len(patterns) == 1:
            ((key, part),) = patterns.items()
            return map_of(self.node(part, "", _within(place, "patternProperties", key), parents), name, doc)
        if additional is False and not patterns:
            return leaf(nodes.FLAG, name, doc)
        return leaf(nodes.TEXT, name, doc)

    def _resolve(self, schema: Any, place: str) -> tuple[Any, str]:
        """Follows $ref, and anyOf, oneOf, allOf where one alternative other than null is left."""
        for _ in range(_HOPS_MAX):
            if isinstance(schema, bool):
                return schema, place
            if not isinstance(schema, dict):
                raise SchemaTextError(f"{place}: a schema is an object, true or false, not {_kind_of(schema)}")
            if "$ref" in schema:
                schema, place = self._target(schema["$ref"], f"{place}/$ref")
                continue
            for word in ("anyOf", "oneOf", "allOf"):
                if word in schema and "type" not in schema and "properties" not in schema:
                    step = self._only(schema[word], f"{place}/{word}")
                    break
            else:
                return schema, place
            if step is None:
                return True, place
            schema, place = step
        raise SchemaTextError(f"{place}: references go in a circle")

    def _only(self, alternatives: Any, place: str) -> tuple[Any, str] | None:
        if not isinstance(alternatives, list) or not alternatives:
            raise SchemaTextError(f"{place}: not a list of schemas")
        if id(alternatives) not in self._left:
            left = [i for i, part in enumerate(alternatives) if not _is_null(part)]
            self._left[id(alternatives)] = None if len(left) > 1 else (*left, 0)[0]
        number = self._left[id(alternatives)]
        return None if number is None else (alternatives[number], f"{place}/{number}")

    def _target(self, reference: Any, place: str) -> tuple[Any, str]:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaTextError(f"{place}: {str(reference)[:80]!r} is not a place in this schema: bundle it as #/…")
        self._size.add(len(reference), place)
        part = self._document
        for step in reference.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, dict) and key in part:
                part = part[key]
            elif isinstance(part, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(part):
                part = part[int(key)]
            else:
                raise SchemaTextError(f"{place}: {reference[:80]!r} leads nowhere in this schema")
        return part, place_within("", reference)

    def _members(self, schema: Schema, word: str, place: str) -> Schema:
        members = schema.get(word, _NO_MEMBERS)
        if not isinstance(members, dict):
            raise SchemaTextError(f"{place}/{word}: not an object but {_kind_of(members)}")
        for key in () if id(members) in self._checked else members:
            if not is_unicode(key):
                raise SchemaTextError(f"{place}/{word}: the name {key[:80]!a} is no Unicode text")
        self._checked.add(id(members))
        return members


def _within(place: str, word: str, key: str) -> str:
    """The place of a member."""
    return place_within(place, f"/{word}/{_escape(key[:PLACE_CHARS_MAX])}")


def _single_type(schema: Schema, place: str) -> str:
    """The only type beside null, "" where there are several or none is said."""
    said = schema.get("type")
    if said is None:
        return _implied_type(schema)
    names = said if isinstance(said, list) else [said]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise SchemaTextError(f"{place}/type: {json.dumps(said)[:80]} is no type of JSON Schema")
    others = set(names) - {"null"}
    if others == {"integer", "number"}:
        return "number"
    return others.pop() if len(others) == 1 else ""


def _implied_type(schema: Schema) -> str:
    """A schema without `type` has the type of its constants; one with properties is an object's."""
    if schema.get("properties"):
        return "object"
    constants = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        constants = [schema["const"]]
    kinds = {_kind_of(constant) for constant in constants} - {"null"}
    return kinds.pop() if kinds in ({"string"}, {"integer"}, {"boolean"}) else ""


def _integer(schema: Schema, place: str) -> int:
    """INTEGER, or DECIMAL where a bound says that values go beyond 64 bits."""
    for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        bound = schema.get(word, 0)
        if isinstance(bound, bool) and word.startswith("exclusive"):  # draft 4
            continue
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise SchemaTextError(f"{place}/{word}: not a number")
        if not _INT64.start <= bound < _INT64.stop + word.startswith("exclusiveMax"):
            return nodes.DECIMAL
    return nodes.INTEGER


def _word(schema: Schema, keyword: str) -> str:
    word = schema.get(keyword)
    return word if isinstance(word, str) else ""


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return schema.get("type") in ("null", ["null"]) or ("const" in schema and schema["const"] is None)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
