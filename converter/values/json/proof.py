"""The proof: a checksum of what a value says, once from its bytes and once from the columns.

Every scalar, object and array of a value has a place: the names and numbers on the way to it. The checksum is the sum,
modulo 2**64, of a hash of (place, kind, content) of each; nulls count as absent. The reader of bytes here knows no
schema and shares with split() only the undoing of escapes and the reading of words. A value whose two sums are equal
stands in the columns whole, at the right places and with nothing added; any other goes to the slow decoder.

The reader relies on split() having checked the grammar, escapes above all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from converter.kernels.kernel import borrowing, i64, u64
from converter.types import BoolArray, UInt8Array
from converter.values.json import nodes
from converter.values.json.gather import TextColumn
from converter.values.json.hashing import hash_bytes, mix
from converter.values.json.scan import BACKSLASH, QUOTE, first_marked, unescape, word_at

_DEPTH: Final = nodes.DEPTH_MAX + 1
_ROOT: Final = 0x1234567
_OBJECT: Final = 1
_ARRAY: Final = 2
_SCALAR: Final = 3
_STRING: Final = 4
_ONES: Final = 0x0101010101010101
_HIGHS: Final = 0x8080808080808080
_QUOTES: Final = 0x2222222222222222
_BACKSLASHES: Final = 0x5C5C5C5C5C5C5C5C
_STRINGS: Final = frozenset({nodes.STRING, nodes.DATETIME, nodes.DATE})


@borrowing
def _string_end(data: UInt8Array, p: int, end: int) -> tuple[int, bool]:
    """The closing quote, or the end; whether there are backslashes before it."""
    escaped = False
    while p < end:
        if end - p >= 8:
            word = word_at(data, p)
            quotes = word ^ u64(_QUOTES)
            slashes = word ^ u64(_BACKSLASHES)
            hits = ((quotes - u64(_ONES)) & ~quotes) | ((slashes - u64(_ONES)) & ~slashes)
            hits &= u64(_HIGHS)
            if hits == 0:
                p += 8
                continue
            p += first_marked(hits)
        if data[p] == QUOTE:
            break
        if data[p] == BACKSLASH:
            escaped = True
            p += 1
        p += 1
    return min(p, end), escaped


@borrowing
def _document(  # noqa: C901  (one loop over one grammar)
    data: UInt8Array,
    p: int,
    end: int,
    root: int,
    scratch: UInt8Array,
    places: Any,
    counts: Any,
) -> int:
    """Checksum of the JSON text data[p:end] whose place is `root`."""
    total = u64(0)
    depth = 0
    place = u64(root)
    is_name = False  # the next string is a member's name
    while p < end:
        c = data[p]
        if c <= 0x20 or c == 0x2C or c == 0x3A:
            p += 1
            continue
        if c == 0x5D or c == 0x7D:
            p += 1
            if depth == 0:
                return u64(0)
            if c == 0x5D:
                total += mix(places[depth], u64(_ARRAY) + (u64(counts[depth]) << u64(8)))
            depth -= 1
            is_name = depth > 0 and counts[depth] < 0
            continue
        if depth > 0 and counts[depth] >= 0:
            place = mix(places[depth], u64(counts[depth]))
            counts[depth] += 1
        if c == QUOTE:
            behind, escaped = _string_end(data, p + 1, end)
            if escaped:
                value = hash_bytes(scratch, 0, unescape(data, p + 1, behind, scratch, 0))
            else:
                value = hash_bytes(data, p + 1, behind)
            p = behind + 1
            if is_name:
                place = mix(places[depth], value)
                is_name = False
                continue
            total += mix(place, value + u64(_STRING))
        elif c == 0x7B or c == 0x5B:
            p += 1
            depth += 1
            if depth >= _DEPTH:
                return u64(0)
            places[depth] = place
            counts[depth] = -1 if c == 0x7B else 0
            is_name = c == 0x7B
            if is_name:
                total += mix(place, u64(_OBJECT))
            continue
        else:
            start = p
            while p < end and data[p] > 0x20 and data[p] != 0x2C and data[p] != 0x5D and data[p] != 0x7D:
                p += 1
            if c != 0x6E:
                total += mix(place, hash_bytes(data, start, p) + u64(_SCALAR))
        is_name = depth > 0 and counts[depth] < 0
    return total


@borrowing
def _documents(
    data: UInt8Array,
    offsets: Any,
    wanted: BoolArray,
    places: Any,
    rows: Any,
    name: int,
    keyed: bool,
    sums: Any,
    scratch: UInt8Array,
    stack: Any,
    counts: Any,
) -> None:
    """Adds the checksum of each wanted text to its row. Its place: places[i], or the member `name` of it."""
    for i in range(len(wanted)):
        if wanted[i]:
            place = mix(places[i], name) if keyed else places[i]
            sums[rows[i]] += _document(data, i64(offsets[i]), i64(offsets[i + 1]), place, scratch, stack, counts)


@borrowing
def _texts(
    data: UInt8Array,
    offsets: Any,
    present: BoolArray,
    places: Any,
    rows: Any,
    name: int,
    keyed: bool,
    tag: int,
    sums: Any,
) -> None:
    """Adds strings, numbers and literals: what a leaf's column says."""
    for i in range(len(present)):
        if present[i]:
            place = mix(places[i], name) if keyed else places[i]
            value = hash_bytes(data, i64(offsets[i]), i64(offsets[i + 1]))
            sums[rows[i]] += mix(place, value + u64(tag))


@borrowing
def _containers(present: BoolArray, places: Any, rows: Any, name: int, keyed: bool, sums: Any, inner: Any) -> None:
    """Adds objects; gives their places."""
    for i in range(len(present)):
        place = mix(places[i], name) if keyed else places[i]
        inner[i] = place
        if present[i]:
            sums[rows[i]] += mix(place, u64(_OBJECT))


@borrowing
def _elements(
    offsets: Any, present: BoolArray, places: Any, rows: Any, name: int, keyed: bool, sums: Any, inner: Any, owners: Any
) -> None:
    """Adds arrays; gives places and rows of their elements."""
    for i in range(len(present)):
        place = mix(places[i], name) if keyed else places[i]
        first, behind = i64(offsets[i]), i64(offsets[i + 1])
        if present[i]:
            sums[rows[i]] += mix(place, u64(_ARRAY) + (u64(behind - first) << u64(8)))
        for k in range(first, behind):
            inner[k] = mix(place, u64(k - first))
            owners[k] = rows[i]


@borrowing
def _entries(
    offsets: Any,
    present: BoolArray,
    places: Any,
    rows: Any,
    name: int,
    keyed: bool,
    sums: Any,
    inner: Any,
    owners: Any,
    data: UInt8Array,
    keys: Any,
) -> None:
    """Adds the objects of a map's column; gives places and rows of its values."""
    for i in range(len(present)):
        place = mix(places[i], name) if keyed else places[i]
        if present[i]:
            sums[rows[i]] += mix(place, u64(_OBJECT))
        for k in range(i64(offsets[i]), i64(offsets[i + 1])):
            inner[k] = mix(place, hash_bytes(data, i64(keys[k]), i64(keys[k + 1])))
            owners[k] = rows[i]


@borrowing
def _less_objects(present: BoolArray, places: Any, rows: Any, sums: Any) -> None:
    """An EXTRA's text is an object of its own at the place of its struct, which counted already."""
    for i in range(len(present)):
        if present[i]:
            sums[rows[i]] -= mix(places[i], u64(_OBJECT))


def proved(data: UInt8Array, offsets: Any, good: BoolArray, column: TextColumn) -> BoolArray:
    """Which of the good values offsets[i]:offsets[i + 1] of data are what the column says they are."""
    count = len(good)
    rows = np.arange(count, dtype=np.int32)
    places = np.full(count, _ROOT, dtype=np.uint64)
    wanted = np.zeros(count, dtype=np.uint64)
    _add_documents(data, offsets, good, (places, rows, np.uint64(0), False), wanted)
    found = np.zeros(count, dtype=np.uint64)
    _add(column, places, rows, np.uint64(0), False, found)
    result: BoolArray = good & (wanted == found)
    return result


def _add_documents(
    data: UInt8Array, offsets: Any, wanted: BoolArray, at: tuple[Any, Any, Any, bool], sums: Any
) -> None:
    """_documents() with work space."""
    longest = int(np.max(np.where(wanted, np.diff(offsets), 0), initial=0))
    scratch = np.empty(longest, dtype=np.uint8)
    stack = np.empty(_DEPTH, dtype=np.uint64)
    counts = np.empty(_DEPTH, dtype=np.int64)
    _documents(data, offsets, wanted, *at, sums, scratch, stack, counts)


def _add(column: TextColumn, places: Any, rows: Any, name: Any, keyed: bool, sums: Any) -> None:
    """Adds a column's sums to its rows'; places and rows are those of its parent's slots, name the hash of its name."""
    kind = column.node.kind
    at = (places, rows, name, keyed)
    if kind == nodes.TEXT:
        _add_documents(column.data, column.offsets, column.present, at, sums)
    elif kind == nodes.EXTRA:
        _add_documents(column.data, column.offsets, column.present, (places, rows, np.uint64(0), False), sums)
        _less_objects(column.present, places, rows, sums)
    elif kind in (nodes.STRUCT, nodes.FLAG):
        inner = np.empty(len(column.present), dtype=np.uint64)
        _containers(column.present, *at, sums, inner)
        for child in column.children:
            _add(child, inner, rows, _name_hash(child.node.name), True, sums)
    elif kind in (nodes.LIST, nodes.MAP):
        count = int(column.offsets[-1])
        inner = np.empty(count, dtype=np.uint64)
        owners = np.empty(count, dtype=np.int32)
        if kind == nodes.LIST:
            _elements(column.offsets, column.present, *at, sums, inner, owners)
        else:
            keys = column.children[0]
            _entries(column.offsets, column.present, *at, sums, inner, owners, keys.data, keys.offsets)
        _add(column.children[-1], inner, owners, np.uint64(0), False, sums)
    else:
        tag = _STRING if kind in _STRINGS else _SCALAR
        _texts(column.data, column.offsets, column.present, *at, tag, sums)


def _name_hash(name: str) -> Any:
    data = np.frombuffer(name.encode(), dtype=np.uint8)
    return np.uint64(hash_bytes(data, 0, len(data)))
