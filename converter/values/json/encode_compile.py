"""A schema's tree and a style as a flat program, which the encoder's kernel runs once for each row.

A step writes one value: its key with the comma before it, then what its kind needs. A container's step is followed by
those of its members; CLOSE ends an object, NEXT goes on to a list's or map's next element, END ends the row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from converter.kernels.kernel import readonly
from converter.types import UInt8Array
from converter.values.json import nodes
from converter.values.json.encode_text import escape_table, write_string
from converter.values.json.nodes import Node
from converter.values.json.style import NUMBER_FORMS, Style, TimeForm, zone_minutes

#: What steps are beside the kinds of nodes. KEY: a map's key.
CLOSE: Final = 20
NEXT: Final = 21
KEY: Final = 22
END: Final = 23

#: One step: op; the node's number; whether a null is left out; its key in `literals`, of which the first object's or
#: list's member leaves out the first `comma` bytes; where to go on behind the value (NEXT: with the next element); the
#: byte that closes; number of its form.
STEP_DTYPE: Final = np.dtype(
    [
        ("op", "<i4"),
        ("node", "<i4"),
        ("skip", "<i4"),
        ("key", "<i4"),
        ("size", "<i4"),
        ("comma", "<i4"),
        ("jump", "<i4"),
        ("closing", "<i4"),
        ("form", "<i4"),
    ],
    align=True,
)
NUMBER_DTYPE: Final = np.dtype(
    [
        ("low", "<i4"),
        ("high", "<i4"),
        ("point", "<i4"),
        ("exponent_point", "<i4"),
        ("letter", "<i4"),
        ("plus", "<i4"),
        ("digits", "<i4"),
        ("minus_zero", "<i4"),
    ],
    align=True,
)
#: `fraction`: digits, or one of those below; `zone`: in `literals`; `offset`: microseconds east of UTC.
TIME_DTYPE: Final = np.dtype(
    [("offset", "<i8"), ("separator", "<i4"), ("fraction", "<i4"), ("zone", "<i4"), ("size", "<i4")], align=True
)
MICROS: Final = -1
GROUPS: Final = -2
SHORTEST: Final = -3
_FRACTIONS: Final = {"micros": MICROS, "groups": GROUPS, "shortest": SHORTEST}
_MINUTE_US: Final = 60_000_000
#: Bytes a character of a name takes at most, escaped as two units of UTF-16.
_ESCAPED_MAX: Final = 12


class JsonEncodeProgram(NamedTuple):
    """What the kernel runs.

    Attributes:
        steps: STEP_DTYPE. literals: bytes of keys and zones. table: what becomes of each byte of a text (escape_table).
        numbers, times: the forms. depth: lists and maps within each other.
    """

    steps: np.ndarray
    literals: UInt8Array
    table: UInt8Array
    numbers: np.ndarray
    times: np.ndarray
    depth: int


def make_program(root: Node, numbers: dict[int, int], style: Style) -> JsonEncodeProgram:
    """The program of the tree under `root`.

    Args:
        root: of the tree.
        numbers: of nodes, by id().
        style: how it is written.

    Raises:
        ValueError: the style is of another tree.
    """
    maker = _Maker(numbers, style)
    maker.value(root, b"", 0, skip=False)
    return maker.program()


class _Maker:
    def __init__(self, numbers: dict[int, int], style: Style) -> None:
        self._numbers = numbers
        self._style = style
        self._table = readonly(escape_table(style), np.uint8)
        self._comma = style.comma.encode()
        self._colon = style.colon.encode()
        self._steps: list[dict[str, int]] = []
        self._literals = bytearray()
        self._number_forms = list(NUMBER_FORMS)
        self._time_forms: dict[TimeForm, int] = {}
        self._depth = 0

    def value(self, node: Node, key: bytes, depth: int, *, skip: bool) -> None:
        """The steps that write a value behind `key`: nothing, a comma, a colon, or a comma, name and colon."""
        at = self._step(node.kind, node, key, skip=skip)
        if node.kind == nodes.STRUCT:
            for child in self._ordered(node):
                name = b"" if child.kind == nodes.EXTRA else self._quoted(child.name) + self._colon
                left_out = child.kind == nodes.EXTRA or self._style.skips_null(self._numbers[id(child)])
                self.value(child, self._comma + name, depth, skip=left_out)
            self._steps[self._step(CLOSE, node)]["closing"] = ord("}")
        elif node.kind in (nodes.LIST, nodes.MAP):
            self._depth = max(self._depth, depth + 1)
            if node.kind == nodes.MAP:
                self._step(KEY, node.children[0], self._comma)
            self.value(node.children[-1], self._colon if node.kind == nodes.MAP else self._comma, depth + 1, skip=False)
            step = self._steps[self._step(NEXT, node)]
            step["jump"] = at + 1
            step["closing"] = self._steps[at]["closing"] = ord("}" if node.kind == nodes.MAP else "]")
        elif node.kind == nodes.NUMBER:
            double = self._style.numbers.get(self._numbers[id(node)], self._style.number)
            self._steps[at]["form"] = self._number_forms.index(double)
        elif node.kind == nodes.DATETIME:
            form = self._style.times.get(self._numbers[id(node)], self._style.time)
            self._steps[at]["form"] = self._time_forms.setdefault(form, len(self._time_forms))
        self._steps[at]["jump"] = len(self._steps)

    def program(self) -> JsonEncodeProgram:
        self._steps.append({"op": END})
        steps = np.zeros(len(self._steps), dtype=STEP_DTYPE)
        for row, step in zip(steps, self._steps, strict=True):
            for name, number in step.items():
                row[name] = number
        forms = [NUMBER_FORMS[name] for name in self._number_forms]
        numbers = [
            (one.low, one.high, one.point, one.exponent_point, ord(one.letter), one.plus, one.digits, one.minus_zero)
            for one in forms
        ]
        times = [self._time(form) for form in self._time_forms]
        return JsonEncodeProgram(
            steps=readonly(steps, STEP_DTYPE),
            literals=readonly(np.frombuffer(bytes(self._literals), dtype=np.uint8), np.uint8),
            table=self._table,
            numbers=readonly(np.array(numbers, dtype=NUMBER_DTYPE), NUMBER_DTYPE),
            times=readonly(np.array(times, dtype=TIME_DTYPE), TIME_DTYPE),
            depth=self._depth,
        )

    def _quoted(self, name: str) -> bytes:
        """A name as it is written, with its quotes."""
        text = np.frombuffer(name.encode(), dtype=np.uint8)
        out = np.empty(len(text) * _ESCAPED_MAX + 2, dtype=np.uint8)
        end = write_string(out, 0, len(out), text, 0, len(text), self._table)
        return out[:end].tobytes()

    def _ordered(self, node: Node) -> list[Node]:
        order = self._style.orders.get(self._numbers[id(node)], tuple(range(len(node.children))))
        if sorted(order) != list(range(len(node.children))):
            raise ValueError("the style orders members that the schema does not have")
        return [node.children[i] for i in order]

    def _step(self, op: int, node: Node, key: bytes = b"", *, skip: bool = False) -> int:
        """Adds a step; its number."""
        size = len(self._comma) if key.startswith(self._comma) else 0
        step = {"op": op, "node": self._numbers[id(node)], "skip": skip, "size": len(key), "comma": size}
        self._steps.append({**step, "key": self._literal(key)})
        return len(self._steps) - 1

    def _literal(self, text: bytes) -> int:
        self._literals += text
        return len(self._literals) - len(text)

    def _time(self, form: TimeForm) -> tuple[int, int, int, int, int]:
        fraction = _FRACTIONS.get(form.fraction)
        digits = int(form.fraction) if fraction is None else fraction
        zone = form.zone.encode()
        offset = zone_minutes(form.zone) * _MINUTE_US
        return offset, ord(form.separator), digits, self._literal(zone), len(zone)
