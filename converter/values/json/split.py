"""JSON values into a tape: which bytes of which value belong to which node, and at which slot of its column.

One pass over the bytes checks grammar, types and ranges against the schema. A value with anything odd in it leaves
nothing on the tape and is marked; the slow decoder (exact_rows.py) says whether it is good after all. Odd are, beside
all errors: names longer than KEY_BYTES_MAX, more than KEYS_MAX names that are no schema's, …

Slots: the members of a struct have its slot. Elements of a list, keys and values of a map are numbered through, over
all values of the call. What is absent or null is not on the tape.

An object with two members of one name has no agreed meaning. Of members the schema knows, `seen` has the object that
had them last; names it does not know are looked up in a small table of hashes, where a collision counts as odd.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from converter.kernels.kernel import borrowing, i64, u64
from converter.limits import VALUE_CELLS_MAX
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.json import nodes
from converter.values.json.hashing import hash_bytes, mix
from converter.values.json.nodes import NodeArrays
from converter.values.json.scan import (
    BAD,
    QUOTE,
    date_fits,
    datetime_fits,
    number_fits,
    scan_literal,
    scan_number,
    scan_string,
    skip_space,
    unescape,
    word_at,
)

#: One entry: node, slot, first byte, bytes; for LIST and MAP the number of elements in place of bytes. `escaped`: a
#: string with escapes in it.
TAPE_DTYPE: Final = np.dtype(
    [("node", "<i4"), ("slot", "<i4"), ("start", "<i4"), ("size", "<i4"), ("escaped", "<i4")], align=True
)
#: One open container: its kind, node (-1: within a TEXT or EXTRA) and slot; its entry on the tape; its first byte, for
#: TEXT; its number; where the EXTRA member begins whose value is being read, else -1; the member that was read last.
_FRAME_DTYPE: Final = np.dtype(
    [
        ("kind", "<i4"),
        ("node", "<i4"),
        ("slot", "<i4"),
        ("entry", "<i4"),
        ("start", "<i4"),
        ("extra", "<i4"),
        ("member", "<i4"),
        ("count", "<i4"),
        ("serial", "<i8"),
    ],
    align=True,
)
KEY_BYTES_MAX: Final = 1024
#: Names of one value. The table has four places for each; a value of so many bytes has not more than a quarter as many
#: names, so it uses no more places than bytes: what is small stays within the cache.
KEYS_MAX: Final = 256 * 1024
_TABLE_MIN: Final = 8 * 1024

_STRUCT, _FLAG, _MAP, _LIST, _TEXT = nodes.STRUCT, nodes.FLAG, nodes.MAP, nodes.LIST, nodes.TEXT
_STRING, _DATETIME, _DATE, _BOOLEAN = nodes.STRING, nodes.DATETIME, nodes.DATE, nodes.BOOLEAN
_DEPTH_MAX = nodes.DEPTH_MAX
# Kinds of frames beside those of nodes, and what a value within a TEXT is.
_RAW_OBJECT, _RAW_ARRAY, _RAW = 20, 21, 22

# Numbers of the state: entries on the tape, serial of the last object, names in the table, its generation; cells of the
# row's lists and maps; the table's places that the row uses, less one: a power of two.
_ENTRIES, _SERIAL, _KEYS, _GENERATION, _CELLS, _MASK = 0, 1, 2, 3, 4, 5


class _Work(NamedTuple):
    """What a call works on.

    Attributes:
        tape: TAPE_DTYPE; what is found. stack: _FRAME_DTYPE; open containers. state: the numbers above.
        slots: of each LIST and MAP, elements so far. seen: of each node, the object that had it last.
        table, generations: hashes of names that the schema does not have, and the row that each place is of.
        scratch: for one name without its escapes.
    """

    tape: Any
    stack: Any
    state: Int64Array
    slots: Any
    seen: Int64Array
    table: Any
    generations: Any
    scratch: UInt8Array


@borrowing
def _emit(tape: Any, state: Int64Array, node: int, slot: int, start: int, size: int, escaped: bool) -> None:
    """One more entry. The tape has room: split() looks before each token, and a token makes three at most."""
    entry = tape[state[_ENTRIES]]
    entry["node"] = node
    entry["slot"] = slot
    entry["start"] = start
    entry["size"] = size
    entry["escaped"] = escaped
    state[_ENTRIES] += 1


@borrowing
def _is_new(state: Int64Array, table: Any, generations: Any, serial: int, name: int) -> bool:
    """Remembers a name of the object `serial`; False where it was there, or the table is full."""
    mask = state[_MASK]
    if state[_KEYS] > mask >> 2:
        return False
    state[_KEYS] += 1
    wanted = mix(name, u64(serial))
    at = i64(wanted & u64(mask))
    while generations[at] == state[_GENERATION]:
        if table[at] == wanted:
            return False
        at = (at + 1) & mask
    generations[at] = state[_GENERATION]
    table[at] = wanted
    return True


@borrowing
def _same(a: UInt8Array, p: int, b: UInt8Array, q: int, size: int) -> bool:
    """Whether a[p:p + size] is b[q:q + size]."""
    while size >= 8:
        if word_at(a, p) != word_at(b, q):
            return False
        p += 8
        q += 8
        size -= 8
    for k in range(size):  # noqa: SIM110  (no generator in a kernel)
        if a[p + k] != b[q + k]:
            return False
    return True


@borrowing
def find_member(plan: Any, arrays: NodeArrays, after: int, data: UInt8Array, p: int, size: int) -> int:
    """Which member of the STRUCT row `plan` is called data[p:p + size], BAD for none; looks behind `after` first."""
    count = plan["count"]
    first = plan["first"]
    at = after + 1
    for _ in range(count):
        if at >= count:
            at = 0
        member = arrays.members[first + at]
        if member["size"] == size and _same(arrays.names, member["start"], data, p, size):
            return at
        at += 1
    return BAD


@borrowing
def _look_up(frame: Any, arrays: NodeArrays, data: UInt8Array, p: int, size: int) -> tuple[int, int]:
    """Which member of the open STRUCT is called data[p:p + size], or BAD and the name's hash."""
    if frame["kind"] == _STRUCT:
        found = find_member(arrays.nodes[frame["node"]], arrays, i64(frame["member"]), data, p, size)
        if found >= 0:
            return found, u64(0)
    return BAD, hash_bytes(data, p, p + size)


@borrowing
def _push(stack: Any, depth: int, state: Int64Array, kind: int, node: int, slot: int, start: int) -> None:
    frame = stack[depth]
    frame["kind"] = kind
    frame["node"] = node
    frame["slot"] = slot
    frame["entry"] = state[_ENTRIES]
    frame["start"] = start
    frame["extra"] = -1
    frame["member"] = -1
    frame["count"] = 0
    state[_SERIAL] += 1
    frame["serial"] = state[_SERIAL]


@borrowing
def _key(
    data: UInt8Array,
    p: int,
    end: int,
    frame: Any,
    arrays: NodeArrays,
    work: _Work,
) -> tuple[int, int, int]:
    """Reads a name at p and its colon: the place behind, node (-1: none) and slot of its value; or BAD."""
    plan, state, slots, seen, scratch = arrays.nodes, work.state, work.slots, work.seen, work.scratch
    p = skip_space(data, p, end)
    if p >= end or data[p] != QUOTE:
        return BAD, 0, 0
    start = p
    p, escaped = scan_string(data, p + 1, end)
    if p < 0 or p - start > KEY_BYTES_MAX:
        return BAD, 0, 0
    behind = skip_space(data, p, end)
    if behind >= end or data[behind] != 0x3A:
        return BAD, 0, 0
    first, size = start + 1, p - start - 2
    if escaped:
        length = unescape(data, first, first + size, scratch, 0)
        found, hashed = _look_up(frame, arrays, scratch, 0, length)
    else:
        found, hashed = _look_up(frame, arrays, data, first, size)
    if found >= 0:
        frame["member"] = found
        node = i64(arrays.members[plan[frame["node"]]["first"] + found]["node"])
        if seen[node] == frame["serial"]:
            return BAD, 0, 0
        seen[node] = frame["serial"]
        return behind + 1, node, i64(frame["slot"])
    if frame["kind"] == _STRUCT:
        if plan[frame["node"]]["extra"] < 0:
            return BAD, 0, 0
        frame["extra"] = start
    if not _is_new(state, work.table, work.generations, frame["serial"], hashed):
        return BAD, 0, 0
    if frame["kind"] == _MAP:
        parent = plan[frame["node"]]
        slot = i64(slots[frame["node"]])
        slots[frame["node"]] += 1
        frame["count"] += 1
        state[_CELLS] += parent["cells"]
        _emit(work.tape, state, parent["element"], slot, first, size, escaped)
        return behind + 1, i64(parent["value"]), slot
    return behind + 1, -1, 0


@borrowing
def _scalar(data: UInt8Array, p: int, end: int, kind: int, node: int, slot: int, tape: Any, state: Int64Array) -> int:
    """Reads a string, number or literal; puts it on the tape where its node takes it; the place behind it, or BAD."""
    c = data[p]
    if c == QUOTE:
        q, escaped = scan_string(data, p + 1, end)
        if q < 0 or kind == _RAW:
            return q
        if kind == _TEXT:
            _emit(tape, state, node, slot, p, q - p, False)
        elif kind == _STRING or (
            not escaped
            and (
                (kind == _DATETIME and datetime_fits(data, p + 1, q - 1))
                or (kind == _DATE and date_fits(data, p + 1, q - 1))
            )
        ):
            _emit(tape, state, node, slot, p + 1, q - p - 2, escaped)
        else:
            return BAD
        return q
    if c == 0x2D or 0x30 <= c <= 0x39:
        q, whole, exponent = scan_number(data, p, end)
        if q < 0 or kind == _RAW:
            return q
        if kind != _TEXT and not number_fits(data, p, q, kind, whole, exponent):
            return BAD
        _emit(tape, state, node, slot, p, q - p, False)
        return q
    q = scan_literal(data, p, end)
    if q < 0 or kind == _RAW or c == 0x6E:
        return q
    if kind != _TEXT and kind != _BOOLEAN:
        return BAD
    _emit(tape, state, node, slot, p, q - p, False)
    return q


@borrowing
def _open(
    data: UInt8Array, p: int, kind: int, node: int, slot: int, stack: Any, depth: int, tape: Any, state: Int64Array
) -> bool:
    """Begins the container at p; False where its node takes none such."""
    if depth >= _DEPTH_MAX:
        return False
    is_object = data[p] == 0x7B
    if kind in (_RAW, _TEXT):
        _push(stack, depth, state, _RAW_OBJECT if is_object else _RAW_ARRAY, -1, slot, p)
        if kind == _TEXT:
            stack[depth]["node"] = node
        return True
    if is_object and kind in (_STRUCT, _FLAG, _MAP):
        _push(stack, depth, state, _MAP if kind == _MAP else _STRUCT, node, slot, p)
    elif not is_object and kind == _LIST:
        _push(stack, depth, state, _LIST, node, slot, p)
    else:
        return False
    _emit(tape, state, node, slot, p, 0, False)
    return True


@borrowing
def _close(frame: Any, behind: int, tape: Any, state: Int64Array) -> None:
    """Ends a container: its number of elements, or the text of a TEXT."""
    kind = frame["kind"]
    if kind in (_LIST, _MAP):
        tape[frame["entry"]]["size"] = frame["count"]
    elif kind != _STRUCT and frame["node"] >= 0:
        _emit(tape, state, frame["node"], frame["slot"], frame["start"], behind - frame["start"], False)


@borrowing
def _behind(
    data: UInt8Array, p: int, end: int, inside: bool, plan: Any, stack: Any, depth: int, tape: Any, state: Int64Array
) -> tuple[int, int]:
    """From behind a value, or from a container's first place inside, to the next value or name.

    Closes what ends here. Returns the place and how many containers are open, 0 where the outermost value has ended;
    BAD for a text that does not go on.
    """
    while depth > 0:
        frame = stack[depth - 1]
        if not inside and frame["extra"] >= 0:
            extra = plan[frame["node"]]["extra"]
            _emit(tape, state, extra, frame["slot"], frame["extra"], p - frame["extra"], False)
            frame["extra"] = -1
        p = skip_space(data, p, end)
        if p >= end:
            return p, BAD
        if data[p] != (0x5D if frame["kind"] in (_LIST, _RAW_ARRAY) else 0x7D):
            if inside:
                return p, depth
            return p + 1, depth if data[p] == 0x2C else BAD
        p += 1
        _close(frame, p, tape, state)
        depth -= 1
        inside = False
    return p, 0


@borrowing
def _value(
    data: UInt8Array,
    p: int,
    end: int,
    row: int,
    arrays: NodeArrays,
    work: _Work,
) -> bool:
    """One value, [p, end). False: it is odd, and what it left on the tape is void."""
    plan, tape, state, slots, stack = arrays.nodes, work.tape, work.state, work.slots, work.stack
    node, slot, depth = 0, row, 0
    room = len(tape) - 4
    p = skip_space(data, p, end)
    if p < end and data[p] == 0x6E and plan[0]["kind"] == _STRUCT:
        return False
    while True:
        p = skip_space(data, p, end)
        if p >= end or state[_ENTRIES] > room or state[_CELLS] > VALUE_CELLS_MAX:
            return False
        kind = _RAW if node < 0 else i64(plan[node]["kind"])
        c = data[p]
        opens = c in (0x7B, 0x5B)
        if opens:
            if not _open(data, p, kind, node, slot, stack, depth, tape, state):
                return False
            depth += 1
            p += 1
        else:
            p = _scalar(data, p, end, kind, node, slot, tape, state)
            if p < 0:
                return False
        p, depth = _behind(data, p, end, opens, plan, stack, depth, tape, state)
        if depth <= 0:
            return depth == 0 and skip_space(data, p, end) == end
        frame = stack[depth - 1]
        if frame["kind"] == _LIST:
            node = i64(plan[frame["node"]]["element"])
            slot = i64(slots[frame["node"]])
            slots[frame["node"]] += 1
            frame["count"] += 1
            state[_CELLS] += plan[frame["node"]]["cells"]
        elif frame["kind"] == _RAW_ARRAY:
            node = -1
        else:
            p, node, slot = _key(data, p, end, frame, arrays, work)
            if p < 0:
                return False


@borrowing
def _split(
    data: UInt8Array,
    offsets: Any,
    wanted: BoolArray,
    arrays: NodeArrays,
    work: _Work,
    before: Any,
    good: BoolArray,
    cells: Int64Array,
) -> int:
    state, slots, table = work.state, work.slots, work.table
    for row in range(len(good)):
        good[row] = False
        cells[row] = 0
        if not wanted[row]:
            continue
        state[_KEYS] = 0
        state[_CELLS] = 0
        state[_GENERATION] = row + 1
        state[_MASK] = _TABLE_MIN - 1
        while state[_MASK] < len(table) - 1 and state[_MASK] < offsets[row + 1] - offsets[row]:
            state[_MASK] = 2 * state[_MASK] + 1
        entries = state[_ENTRIES]
        for k in range(len(slots)):
            before[k] = slots[k]
        p, end = i64(offsets[row]), i64(offsets[row + 1])
        if _value(data, p, end, row, arrays, work):
            good[row] = True
        else:
            state[_ENTRIES] = entries
            for k in range(len(slots)):
                slots[k] = before[k]
        cells[row] = state[_CELLS]
    return i64(state[_ENTRIES])


def split(
    data: UInt8Array, offsets: Any, wanted: BoolArray, arrays: NodeArrays
) -> tuple[Any, Any, BoolArray, Int64Array]:
    """Splits the values offsets[i]:offsets[i + 1] of data, for each i that is wanted.

    Returns:
        The tape (TAPE_DTYPE), in the order of the bytes but for TEXT, which stands where it ends; the number of slots
        per LIST and MAP node, of their elements; which values are good; and cells that lists and maps of each take.
        A value that takes more than VALUE_CELLS_MAX is not good, and its count is beyond that.

    Caller's promise: offsets rise within [0, len(data)], len(data) < 2**31; wanted values are UTF-8 and no larger than
    VALUE_BYTES_MAX.
    """
    size = int(offsets[-1]) - int(offsets[0])
    longest = int(np.max(np.where(wanted, np.diff(offsets), 0), initial=0))
    places = min(max(_TABLE_MIN, 1 << longest.bit_length()), 4 * KEYS_MAX)
    count = len(arrays.nodes)
    work = _Work(
        tape=np.empty(size // 2 + 4 * nodes.DEPTH_MAX, dtype=TAPE_DTYPE),
        stack=np.zeros(nodes.DEPTH_MAX, dtype=_FRAME_DTYPE),
        state=np.zeros(6, dtype=np.int64),
        slots=np.zeros(count, dtype=np.int32),
        seen=np.zeros(count, dtype=np.int64),
        table=np.zeros(places, dtype=np.uint64),
        generations=np.zeros(places, dtype=np.int32),
        scratch=np.empty(KEY_BYTES_MAX, dtype=np.uint8),
    )
    good = np.zeros(len(wanted), dtype=np.bool_)
    cells = np.zeros(len(wanted), dtype=np.int64)
    entries: int = _split(data, offsets, wanted, arrays, work, np.zeros(count, dtype=np.int32), good, cells)
    return work.tape[:entries], work.slots, good, cells
