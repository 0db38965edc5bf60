"""Makes of a schema what the kernel runs (kernel.py), and the columns its slots become (assemble.py).

A record's named types are laid out where they are used. A type within itself becomes a call of a sub-program that
checks the value and fills nothing; the value's bytes are kept, and become JSON.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from converter.values.avro.columns import Column, Form, Storage
from converter.values.avro.decimal import limits
from converter.values.avro.logical import Logical, Meaning
from converter.values.avro.program import Op, Program
from converter.values.avro.schema import NESTING_MAX, AvroType, Kind, Member, Names
from converter.values.model import BARE_VALUE, SchemaTextError
from converter.values.schema_size import place_within

#: Columns of one schema, those within others counted too.
COLUMNS_MAX: Final = 10_000
NO_SLOT: Final = -1
#: What one step in writing a value as JSON takes, in Python's objects, beside the texts of its schema.
JSON_STEP_CELLS: Final = 16
DECIMAL128_DIGITS: Final = 38
_INT64_MAX: Final = 2**63 - 1

_PLAIN: Final = {
    Kind.BOOLEAN: (Op.BOOL, Form.BOOL),
    Kind.INT: (Op.INT, Form.INT),
    Kind.LONG: (Op.LONG, Form.LONG),
    Kind.FLOAT: (Op.FLOAT, Form.FLOAT),
    Kind.DOUBLE: (Op.DOUBLE, Form.DOUBLE),
    Kind.BYTES: (Op.BYTES, Form.BYTES),
    Kind.STRING: (Op.TEXT, Form.TEXT),
}
_TIMESTAMPS: Final = {
    Meaning.TIMESTAMP_MILLIS: (1000, Form.INSTANT),
    Meaning.TIMESTAMP_MICROS: (1, Form.INSTANT),
    Meaning.LOCAL_TIMESTAMP_MILLIS: (1000, Form.LOCAL),
    Meaning.LOCAL_TIMESTAMP_MICROS: (1, Form.LOCAL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A schema, ready to run.

    Attributes:
        columns: the fields, as children of one struct.
        slots: which array each slot is in.
        groups: of each slot, as the kernel counts them.
        group_count: how many groups there are; at least one.
        cells: that one row takes, what its lists and maps hold left out.
        places: of each instruction, the path of the field it reads, for messages.
    """

    program: Program
    columns: Column
    slots: tuple[Storage, ...]
    groups: tuple[int, ...]
    group_count: int
    cells: int
    places: tuple[str, ...]


def lay_out(root: AvroType, names: Names) -> Layout:
    """The program and columns of a schema.

    Raises:
        SchemaTextError: it has too many columns, or nests too deep once its names are followed.
    """
    builder = _Builder(names=names)
    top = names.resolve(root)
    if top.kind is Kind.RECORD and top.members:
        columns = builder.record(top, group=0)
    else:
        columns = Column(name="", form=Form.STRUCT, group=0, children=(builder.member(Member(BARE_VALUE, root), 0),))
    builder.emit(Op.END)
    builder.sub_programs()
    weights: dict[int, int] = {}
    cells = columns.weigh(weights)
    for line in builder.code:
        if line[0] == Op.LIST and line[2] != NO_SLOT:
            line[5] = weights[line[2]]
    code = np.array(builder.code, dtype=np.int64).reshape(-1, 6)
    program = Program(
        code, np.array(builder.targets, dtype=np.int64), np.frombuffer(bytes(builder.limits) or b"\0", dtype=np.uint8)
    )
    return Layout(
        program=program,
        columns=columns,
        slots=tuple(builder.slots),
        groups=tuple(builder.groups),
        group_count=builder.group_count,
        cells=cells,
        places=tuple(builder.places),
    )


@dataclass(slots=True, kw_only=True)
class _Builder:
    names: Names
    code: list[list[int]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    limits: bytearray = field(default_factory=bytearray)
    slots: list[Storage] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    group_count: int = 1
    columns: int = 0
    json_cells: int = 0  # of what was emitted since the list or sub-program began; see JSON_STEP_CELLS
    _name: str = ""  # of the field being laid out, and where it is
    _place: str = ""
    _open: list[str] = field(default_factory=list)  # records being laid out, each within the one before
    _depths: list[int] = field(default_factory=list)  # how deep each of them lies
    _depth: int = 0
    _quiet: bool = False
    _empty: dict[str, bool] = field(default_factory=dict)  # record -> whether its values may take no bytes
    _wanted: dict[str, list[int]] = field(default_factory=dict)  # record -> calls of its sub-program

    def emit(self, op: Op, slot: int = NO_SLOT, a: int = 0, b: int = 0, c: int = 0) -> int:
        """Adds an instruction; returns its number."""
        self.code.append([int(op), slot, a, b, c, 0])
        self.places.append(self._place)
        return len(self.code) - 1

    def _slot(self, storage: Storage, group: int) -> int:
        if self._quiet:
            return NO_SLOT
        self.slots.append(storage)
        self.groups.append(group)
        return len(self.slots) - 1

    def member(self, member: Member, group: int) -> Column:
        """A field's column, with what the schema says beside its type."""
        texts = (member.name, member.doc or "", *member.aliases)
        self.names.size.add(sum(map(len, texts)), self._place)
        outside = self._name, self._place
        self._name, self._place = member.name, place_within(f"{self._place}." if self._place else "", member.name)
        column = self._column(member.type, group)
        self._name, self._place = outside
        column.name, column.aliases, column.doc = member.name, member.aliases, member.doc
        return column

    def record(self, node: AvroType, group: int) -> Column:
        """A record's column; one without fields is a bool."""
        if not node.members:
            slot = self._slot(Storage.FLAGS, group)
            self.emit(Op.MARK, slot)
            return Column(name="", form=Form.BOOL, group=group, slot=slot)
        self._open.append(node.name)
        self._depths.append(self._depth)
        children = tuple(self.member(member, group) for member in node.members)
        self._open.pop()
        self._depths.pop()
        return Column(name="", form=Form.STRUCT, group=group, children=children)

    def _column(self, node: AvroType, group: int) -> Column:
        self.columns += 1
        if self.columns > COLUMNS_MAX:
            raise SchemaTextError(f"schema: more than {COLUMNS_MAX} fields, those of nested types counted where used")
        if self._depth > NESTING_MAX:
            raise SchemaTextError(f"{self._place}: nested deeper than {NESTING_MAX}")
        self._depth += 1
        self.json_cells += JSON_STEP_CELLS + len(self._name.encode())
        column = self._laid_out(self.names.resolve(node), group)
        self._depth -= 1
        return column

    def _laid_out(self, node: AvroType, group: int) -> Column:
        if node.kind is Kind.RECORD:
            return self._call(node, group) if node.name in self._open else self.record(node, group)
        if node.kind is Kind.UNION:
            return self._union(node, group)
        if node.kind in (Kind.ARRAY, Kind.MAP):
            return self._list(node, group)
        if node.kind is Kind.NULL:
            return Column(name="", form=Form.NOTHING, group=group)
        if node.kind is Kind.ENUM:
            slot = self._slot(Storage.INTS, group)
            self.emit(Op.ENUM, slot, len(node.symbols))
            self.names.size.add(sum(map(len, node.symbols)) + len(node.symbols), self._place)
            self.json_cells += max((len(symbol.encode()) for symbol in node.symbols), default=0)
            return Column(name="", form=Form.SYMBOL, group=group, slot=slot, symbols=node.symbols)
        if node.logical is not None:
            return self._logical(node, node.logical, group)
        if node.kind is Kind.FIXED:
            return self._leaf(Op.FIXED, Form.BYTES, group, node.size)
        op, form = _PLAIN[node.kind]
        return self._leaf(op, form, group)

    def _leaf(self, op: Op, form: Form, group: int, a: int = 0, b: int = 0, c: int = 0) -> Column:
        slot = self._slot(form.storage, group)
        self.emit(op, slot, a, b, c)
        return Column(name="", form=form, group=group, slot=slot)

    def _logical(self, node: AvroType, logical: Logical, group: int) -> Column:
        meaning = logical.meaning
        if meaning is Meaning.DATE:
            return self._leaf(Op.INT, Form.DATE, group)
        if meaning is Meaning.TIME_MILLIS:
            return self._leaf(Op.SCALED_INT, Form.LONG, group, 1000)
        if meaning is Meaning.TIME_MICROS:
            return self._leaf(Op.LONG, Form.LONG, group)
        if meaning in _TIMESTAMPS:
            factor, form = _TIMESTAMPS[meaning]
            if factor == 1:
                return self._leaf(Op.LONG, form, group)
            return self._leaf(Op.SCALED_LONG, form, group, factor, _INT64_MAX // factor)
        if meaning is Meaning.UUID:
            return self._leaf(Op.UUID, Form.TEXT, group, node.size)
        if meaning is Meaning.DURATION:
            return self._duration(node, group)
        table, width = limits(logical.precision)
        start = len(self.limits)
        self.limits += table.tobytes()
        size = node.size if node.kind is Kind.FIXED else -1
        short = logical.precision <= DECIMAL128_DIGITS
        op, form = (Op.DECIMAL, Form.DECIMAL) if short else (Op.DECIMAL_BYTES, Form.DECIMAL_TEXT)
        column = self._leaf(op, form, group, size, start, width)
        column.precision, column.scale = logical.precision, logical.scale
        return column

    def _duration(self, node: AvroType, group: int) -> Column:
        first, *_ = slots = [self._slot(Storage.LONGS, group) for _ in range(3)]
        self.emit(Op.DURATION, first, node.size)
        children = [
            Column(name=name, form=Form.LONG, group=group, slot=s)
            for name, s in zip(("months", "days", "millis"), slots, strict=True)
        ]
        return Column(name="", form=Form.STRUCT, group=group, children=tuple(children))

    def _list(self, node: AvroType, group: int) -> Column:
        slot = self._slot(Storage.INTS, group)
        items = NO_SLOT
        if not self._quiet:
            items, self.group_count = self.group_count, self.group_count + 1
        empty = node.kind is Kind.ARRAY and self._may_be_empty(self.names.resolve(node.parts[0]))
        start = self.emit(Op.LIST, slot, items, c=int(empty))
        outside, self.json_cells = self.json_cells, 0
        keys = (self._leaf(Op.TEXT, Form.TEXT, items),) if node.kind is Kind.MAP else ()
        children = (*keys, self._column(node.parts[0], items))
        self.emit(Op.NEXT)
        self.code[start][3] = len(self.code)
        self.code[start][5], self.json_cells = self.json_cells, outside
        return Column(
            name="", form=Form.MAP if node.kind is Kind.MAP else Form.LIST, group=group, slot=slot, children=children
        )

    def _union(self, node: AvroType, group: int) -> Column:
        branches = [self.names.resolve(part) for part in node.parts]
        given = [part for part in branches if part.kind is not Kind.NULL]
        self.names.size.add(sum(len(part.name) for part in branches), self._place)
        self.json_cells += max(len(part.name.encode()) for part in branches)
        if len(branches) == 2 and len(given) == 1:
            null = branches.index(next(part for part in branches if part.kind is Kind.NULL))
            valid = self._slot(Storage.FLAGS, group)
            start = self.emit(Op.OPTION, valid, null)
            column = self._column(given[0], group)
            self.code[start][3] = len(self.code)
            column.valid = valid
            return column
        table = len(self.targets)
        self.targets += [0] * len(branches)
        self.emit(Op.UNION, NO_SLOT, table, len(branches))
        if len(given) <= 1:
            return self._single(given, table, group)
        return self._struct_of(branches, table, group)

    def _single(self, given: list[AvroType], table: int, group: int) -> Column:
        """A union of one type."""
        self.targets[table] = len(self.code)
        return self._column(given[0], group) if given else Column(name="", form=Form.NOTHING, group=group)

    def _struct_of(self, branches: list[AvroType], table: int, group: int) -> Column:
        valid = self._slot(Storage.FLAGS, group) if any(part.kind is Kind.NULL for part in branches) else NO_SLOT
        jumps, children = [], []
        for i, (branch, name) in enumerate(zip(branches, _branch_names(branches), strict=True)):
            self.targets[table + i] = len(self.code)
            if branch.kind is not Kind.NULL:
                present = self._slot(Storage.FLAGS, group)
                if valid != NO_SLOT:
                    self.emit(Op.MARK, valid)
                self.emit(Op.MARK, present)
                child = self.member(Member(name, branch), group)
                child.valid = present
                children.append(child)
            jumps.append(self.emit(Op.JUMP))
        for jump in jumps:
            self.code[jump][2] = len(self.code)
        return Column(name="", form=Form.STRUCT, group=group, valid=valid, children=tuple(children))

    def _call(self, node: AvroType, group: int) -> Column:
        """A record within itself."""
        slot = self._slot(Storage.DATA, group)
        position = len(self._open) - 1 - self._open[::-1].index(node.name)
        call = self.emit(Op.CALL, slot, 0, self._depth - self._depths[position] + 1)
        self._wanted.setdefault(node.name, []).append(call)
        return Column(name="", form=Form.JSON, group=group, slot=slot, recursive=node)

    def sub_programs(self) -> None:
        """Adds the programs of the records that lie within themselves, and lets the calls find them."""
        self._quiet = True
        starts: dict[str, int] = {}
        cells: dict[str, int] = {}
        while missing := [name for name in self._wanted if name not in starts]:
            name = missing[0]
            starts[name] = len(self.code)
            self._name = name
            self._place = place_within("", name)
            self._depth = 0
            self.json_cells = 0
            self.record(self.names.resolve(AvroType(kind=Kind.REFERENCE, name=name)), NO_SLOT)
            self.emit(Op.RETURN)
            cells[name] = self.json_cells
        for name, calls in self._wanted.items():
            for call in calls:
                self.code[call][2], self.code[call][5] = starts[name], cells[name]

    def _may_be_empty(self, node: AvroType) -> bool:
        """Whether a value of this type may take no bytes. A record within itself without end has no values at all."""
        if node.kind is Kind.FIXED:
            return node.size == 0
        if node.kind is not Kind.RECORD:
            return node.kind is Kind.NULL
        if node.name not in self._empty:
            self._empty[node.name] = True
            inner = (self.names.resolve(member.type) for member in node.members)
            self._empty[node.name] = all(self._may_be_empty(one) for one in inner)
        return self._empty[node.name]


def _branch_names(branches: list[AvroType]) -> list[str]:
    """The types' names; those of records, enums and fixed without namespace where that leaves them different."""
    short = [part.name.rpartition(".")[2] or part.kind.value for part in branches]
    often = Counter(short)
    return [part.name if part.name and often[s] > 1 else s for part, s in zip(branches, short, strict=True)]
