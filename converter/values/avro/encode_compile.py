"""Makes of a schema's layout, as the decoder uses it, what the kernel that writes runs (encode_kernel.py).

What a leaf is written as comes from the very instruction that reads it; which branches a union has, from the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from converter.values.avro.columns import Column, Form
from converter.values.avro.compile import NO_SLOT, Layout
from converter.values.avro.encode_ops import BRANCH, NOTHING, RECORD, Writing
from converter.values.avro.program import Op
from converter.values.avro.schema import AvroType, Kind, Names

_NO_INPUT = -1


def is_written(column: Column) -> bool:
    """Whether values can be made of a column again: not of JSON, which has lost what it does not need."""
    return column.form is not Form.JSON and all(is_written(child) for child in column.children)


def numbered(columns: Column) -> dict[Column, int]:
    """The number of each column's input: parents before their children, from 0."""
    numbers: dict[Column, int] = {}
    _number(columns, numbers)
    return numbers


def _number(column: Column, numbers: dict[Column, int]) -> None:
    numbers[column] = len(numbers)
    for child in column.children:
        _number(child, numbers)


def lay_out_writing(root: AvroType, names: Names, layout: Layout) -> tuple[Writing, int]:
    """(program, how many lists and maps lie within each other at most) of a schema for whose columns is_written()."""
    reading: dict[int, list[int]] = {}
    for instruction in layout.program.code.tolist():
        reading.setdefault(instruction[1], instruction)
    builder = _Builder(names=names, reading=reading, numbers=numbered(layout.columns))
    top = names.resolve(root)
    if top.kind is Kind.RECORD and top.members:
        builder.value(top, layout.columns)
    else:
        builder.emit(RECORD, builder.numbers[layout.columns])
        builder.value(root, layout.columns.children[0])
    builder.emit(Op.END)
    code = np.array(builder.code, np.int64).reshape(-1, 5)
    branches = np.array(builder.branches, np.int64).reshape(-1, 2)
    return Writing(code, branches, layout.program.limits), builder.depth_max


@dataclass(slots=True, kw_only=True)
class _Builder:
    """`reading`: by slot, the instruction that fills it."""

    names: Names
    reading: dict[int, list[int]]
    numbers: dict[Column, int]
    code: list[list[int]] = field(default_factory=list)
    branches: list[list[int]] = field(default_factory=list)
    depth: int = 0
    depth_max: int = 0

    def emit(self, op: int, number: int = _NO_INPUT, a: int = 0, b: int = 0, c: int = 0) -> int:
        """Adds an instruction; returns its number."""
        self.code.append([int(op), number, a, b, c])
        return len(self.code) - 1

    def value(self, node: AvroType, column: Column) -> None:
        """Adds what writes a value of this type from this column."""
        node = self.names.resolve(node)
        number = self.numbers[column]
        if node.kind is Kind.UNION:
            self._union(node, column)
        elif node.kind is Kind.NULL:
            self.emit(NOTHING, number)
        elif node.kind is Kind.RECORD and node.members:
            self.emit(RECORD, number)
            for member, child in zip(node.members, column.children, strict=True):
                self.value(member.type, child)
        elif node.kind in (Kind.ARRAY, Kind.MAP):
            self._list(node, column)
        else:  # a leaf; a duration is read by the instruction of its first number
            first = column if column.slot != NO_SLOT else column.children[0]
            op, _, a, b, c, _ = self.reading[first.slot]
            self.emit(op, number, a, b, c)

    def _list(self, node: AvroType, column: Column) -> None:
        may_be_empty = self.reading[column.slot][4]
        start = self.emit(Op.LIST, self.numbers[column], c=may_be_empty)
        self.depth += 1
        self.depth_max = max(self.depth_max, self.depth)
        if node.kind is Kind.MAP:
            self.emit(Op.TEXT, self.numbers[column.children[0]])
        self.value(node.parts[0], column.children[-1])
        self.emit(Op.NEXT)
        self.depth -= 1
        self.code[start][3] = len(self.code)

    def _union(self, node: AvroType, column: Column) -> None:
        branches = [self.names.resolve(part) for part in node.parts]
        number = self.numbers[column]
        if len(branches) == 1:
            self.emit(BRANCH)
            self.value(branches[0], column)
        elif column.valid != NO_SLOT and self.reading[column.valid][0] == Op.OPTION:
            null = self.reading[column.valid][2]
            start = self.emit(Op.OPTION, number, null)
            self.value(branches[1 - null], column)
            self.code[start][3] = len(self.code)
        else:
            self._struct(branches, column)

    def _struct(self, branches: list[AvroType], column: Column) -> None:
        """A union of several types."""
        table = len(self.branches)
        self.branches += [[_NO_INPUT, 0] for _ in branches]
        start = self.emit(Op.UNION, self.numbers[column], table, len(branches))
        children = iter(column.children)
        jumps = []
        for i, branch in enumerate(branches):
            self.branches[table + i][1] = len(self.code)
            if branch.kind is not Kind.NULL:
                child = next(children)
                self.branches[table + i][0] = self.numbers[child]
                self.value(branch, child)
            jumps.append(self.emit(Op.JUMP))
        for jump in jumps:
            self.code[jump][2] = len(self.code)
        self.code[start][4] = len(self.code)
