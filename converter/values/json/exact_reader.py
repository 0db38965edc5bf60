"""One JSON text, read strictly and with the place of every value: what the slow decoder and inference work on.

RFC 8259 and no more: no NaN, no BOM, no second member of one name, no lone surrogates, no bytes behind the value.
Independent of the kernels: a regular expression for numbers, the standard library's string scanner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final

import numpy as np

from converter.types import UInt8Array
from converter.values.json.nodes import DEPTH_MAX, VALUE_BYTES_MAX
from converter.values.model import ValueProblem

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class BadValue(Exception):  # noqa: N818, a verdict on one value that never leaves this room
    """A value has no columns; `problem` and `text` are what its error says."""

    def __init__(self, problem: ValueProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem
        self.text = text


# Not frozen: of the time that a value takes, a frozen dataclass is a third.
@dataclass(slots=True)
class Number:
    """A number as it is written; `whole`: without fraction and exponent."""

    text: str
    whole: bool


@dataclass(slots=True)
class ObjectMember:
    """A member of an object; `start`: where the quote of its name is."""

    value: Value
    start: int

    @property
    def text(self) -> str:
        """From the quote of its name to the end of its value."""
        return self.value.document[self.start : self.value.end]


@dataclass(slots=True)
class Value:
    """A value, [start, end) of a document. `content`: None, bool, str, Number, a list of values or members by name.

    Texts are cut out when they are asked for: of values within values they would be as many copies as these are deep.
    """

    content: Content
    document: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """The value as it is written."""
        return self.document[self.start : self.end]


Content = None | bool | str | Number | list["Value"] | dict[str, "ObjectMember"]


#: Cells of one value or name that Python reads: its objects are so much larger than what becomes of them.
TOKEN_CELLS: Final = 16
#: Bytes of a text that take as much, with what is cut out of it, as a cell does.
BYTES_PER_CELL: Final = 2
_SEPARATORS: Final = (0x2C, 0x3A, 0x5B, 0x7B)  # , : [ {


def parsing_cells(data: UInt8Array) -> int:
    """What parse() takes at most for these bytes, in cells."""
    counts = np.bincount(data, minlength=256) if len(data) else np.zeros(256, dtype=np.int64)
    tokens = 1 + sum(int(counts[byte]) for byte in _SEPARATORS)
    return tokens * TOKEN_CELLS + len(data) // BYTES_PER_CELL


def parse(data: bytes) -> Value:
    """The value that `data` is.

    Raises:
        BadValue: INVALID_UTF8 or UNDECODABLE. The text is the same for the same damage, wherever it lies.
    """
    if len(data) > VALUE_BYTES_MAX:
        raise BadValue(ValueProblem.UNDECODABLE, f"larger than {VALUE_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadValue(ValueProblem.INVALID_UTF8, "the value is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise _bad("begins with a byte order mark")
    value, end = _value(text, _skip(text, 0), 0)
    if _skip(text, end) != len(text):
        raise _bad("more text behind the JSON value")
    return value


def _bad(what: str) -> BadValue:
    return BadValue(ValueProblem.UNDECODABLE, what)


def _skip(text: str, at: int) -> int:
    if text[at : at + 1] > " ":  # as nearly always, and in half the time
        return at
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int) -> tuple[Value, int]:
    """The value at `at`, within `depth` containers, and the place behind it."""
    first = text[at : at + 1]
    if not first:
        raise _bad("the text ends before its value does")
    if first in "{[" and depth >= DEPTH_MAX:
        raise _bad(f"nested more than {DEPTH_MAX} deep")
    content: Content
    if first == "{":
        content, end = _object(text, at + 1, depth + 1)
    elif first == "[":
        content, end = _array(text, at + 1, depth + 1)
    elif first == '"':
        content, end = _string(text, at)
    elif first in _LITERALS:
        word, content = _LITERALS[first]
        end = at + len(word)
        if text[at:end] != word:
            raise _bad("a word that is neither true, false nor null")
    else:
        match = _NUMBER.match(text, at)
        if match is None:
            raise _bad("no JSON value where one is expected")
        content, end = Number(match[0], not (match[1] or match[2])), match.end()
    return Value(content, text, at, end), end


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        content, end = scanstring(text, at + 1, True)
    except ValueError:
        raise _bad("a string that does not end, or with a bad escape or control character") from None
    try:
        content.encode()
    except UnicodeEncodeError:
        raise _bad("a string with half of a surrogate pair") from None
    return content, end


def _array(text: str, at: int, depth: int) -> tuple[list[Value], int]:
    values: list[Value] = []
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return values, at + 1
    while True:
        value, at = _value(text, _skip(text, at), depth)
        values.append(value)
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return values, at + 1
        if text[at : at + 1] != ",":
            raise _bad("an array without , or ] behind a value")
        at += 1


def _object(text: str, at: int, depth: int) -> tuple[dict[str, ObjectMember], int]:
    members: dict[str, ObjectMember] = {}
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        start = _skip(text, at)
        if text[start : start + 1] != '"':
            raise _bad("an object without a name where one is expected")
        name, at = _string(text, start)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _bad("an object without : behind a name")
        value, at = _value(text, _skip(text, at + 1), depth)
        if name in members:
            raise _bad("an object with two members of one name")
        members[name] = ObjectMember(value, start)
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise _bad("an object without , or } behind a value")
        at += 1
