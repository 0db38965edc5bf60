"""What a JSON schema becomes: a tree of nodes, one per column, list element, map key and map value.

kind       JSON value               column
STRUCT     object with properties   struct; its last child may be an EXTRA
FLAG       object without members   bool, true
MAP        object, any names        map<string, child>; children: key (STRING), value
LIST       array                    list<child>
STRING     string                   string
DATETIME   string, RFC 3339         timestamp[us, UTC]
DATE       string, RFC 3339         date32
INTEGER    number                   int64
DECIMAL    number, whole            decimal128(38, 0)
NUMBER     number                   float64
BOOLEAN    true, false              bool
TEXT       anything                 string, the JSON text as it stands in the value
EXTRA      –                        string, a JSON object of the members its struct has no child for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from converter.kernels.kernel import readonly
from converter.types import UInt8Array
from converter.values.model import DOC, SOURCE

STRUCT: Final = 0
FLAG: Final = 1
MAP: Final = 2
LIST: Final = 3
STRING: Final = 4
DATETIME: Final = 5
DATE: Final = 6
INTEGER: Final = 7
DECIMAL: Final = 8
NUMBER: Final = 9
BOOLEAN: Final = 10
TEXT: Final = 11
EXTRA: Final = 12

#: Containers within containers that a value may have.
DEPTH_MAX: Final = 100
#: Larger values do not decode.
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024
#: Whole numbers beyond this, either side of zero, are not all doubles.
WHOLE_DOUBLE_MAX: Final = 2**53

EXTRA_NAME: Final = "_additional"
#: Behind a member's name, in the name that a column of JSON text is found by.
_BESIDE: Final = " (JSON text)"

_LEAF_TYPES: Final = {
    FLAG: pa.bool_(),
    STRING: pa.string(),
    DATETIME: pa.timestamp("us", "UTC"),
    DATE: pa.date32(),
    INTEGER: pa.int64(),
    DECIMAL: pa.decimal128(38, 0),
    NUMBER: pa.float64(),
    BOOLEAN: pa.bool_(),
    TEXT: pa.string(),
    EXTRA: pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One column, list element, map key or map value.

    Attributes:
        name: the member's name within its object; for EXTRA the column's name; "" for the root, elements, keys, values.
        type: the column's Arrow type.
        doc: the schema's description, "" for none.
        named: of a STRUCT, `members` by name.
        beside: of a TEXT: values that are no strings were once in a column of another type, perhaps a string's.
    """

    kind: int
    name: str
    type: pa.DataType
    children: tuple[Node, ...] = ()
    doc: str = ""
    named: Mapping[str, Node] = field(default_factory=dict, compare=False, repr=False)
    beside: bool = False

    def field(self) -> pa.Field:
        """The node as a field of its struct."""
        metadata = {DOC: self.doc.encode("utf-8", "replace")} if self.doc else {}
        element = self
        while element.kind == LIST:
            (element,) = element.children
        if element.beside:
            metadata[SOURCE] = f"{self.name}{_BESIDE}".encode()
        return pa.field(self.name, self.type, metadata=metadata or None)

    @property
    def members(self) -> tuple[Node, ...]:
        """The children of a STRUCT that have names of their own."""
        return self.children[:-1] if self.extra else self.children

    @property
    def extra(self) -> Node | None:
        """The EXTRA of a STRUCT, if it has one."""
        return self.children[-1] if self.children and self.children[-1].kind == EXTRA else None

    @property
    def cells(self) -> int:
        """Of one value of this node; what lists and maps hold is left out."""
        inner = 0 if self.kind in (MAP, LIST) else sum(child.cells for child in self.children)
        return 1 + inner + (self.kind == DECIMAL)

    @property
    def item_cells(self) -> int:
        """Of LIST and MAP: of one element or entry."""
        return sum(child.cells for child in self.children)

    def walk(self) -> Iterator[Node]:
        """The node and all below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def is_extra_name(name: str) -> bool:
    """Whether a column for members without one may have the name."""
    return name.startswith(EXTRA_NAME) and not name.removeprefix(EXTRA_NAME).strip("_")


def leaf(kind: int, name: str, doc: str = "") -> Node:
    """A node without children."""
    return Node(kind=kind, name=name, type=_LEAF_TYPES[kind], children=(), doc=doc)


def list_of(element: Node, name: str, doc: str = "") -> Node:
    """An array whose elements have one type."""
    return Node(kind=LIST, name=name, type=pa.list_(pa.field("element", element.type)), children=(element,), doc=doc)


def map_of(value: Node, name: str, doc: str = "") -> Node:
    """An object whose members have any names and one type."""
    return Node(kind=MAP, name=name, type=pa.map_(pa.string(), value.type), children=(leaf(STRING, ""), value), doc=doc)


def struct_of(members: tuple[Node, ...], name: str, doc: str = "", *, additional: bool) -> Node:
    """An object with these members; `additional`: and others, which go to a field `_additional`.

    Where a member has that name, the field gets more underscores behind it.
    """
    if not members and not additional:
        return leaf(FLAG, name, doc)
    children = members
    if additional:
        extra = EXTRA_NAME
        while any(member.name == extra for member in members):
            extra += "_"
        children = (*members, leaf(EXTRA, extra))
    named = {member.name: member for member in members}
    return Node(
        kind=STRUCT,
        name=name,
        type=pa.struct([child.field() for child in children]),
        children=children,
        doc=doc,
        named=named,
    )


#: One node: kind; its members' place in `members`; numbers of its EXTRA, of its element or key, of its value, or -1;
#: cells of one of its elements or entries.
NODE_DTYPE: Final = np.dtype(
    [
        ("kind", "<i4"),
        ("first", "<i4"),
        ("count", "<i4"),
        ("extra", "<i4"),
        ("element", "<i4"),
        ("value", "<i4"),
        ("cells", "<i4"),
    ],
    align=True,
)
#: One member of a STRUCT: its node, its name as UTF-8 in `names`.
MEMBER_DTYPE: Final = np.dtype([("node", "<i4"), ("start", "<i4"), ("size", "<i4")], align=True)


class NodeArrays(NamedTuple):
    """A tree as kernels take it.

    Attributes:
        nodes: NODE_DTYPE.
        members: MEMBER_DTYPE; those of one STRUCT lie together.
        names: bytes of the names.
    """

    nodes: np.ndarray
    members: np.ndarray
    names: UInt8Array


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A tree's arrays, and the number in them of each node, by its id()."""

    arrays: NodeArrays
    numbers: dict[int, int]

    def number(self, node: Node) -> int:
        """Number of a node of the tree the plan was made from; the same object, not an equal one."""
        return self.numbers[id(node)]


def make_plan(root: Node) -> NodePlan:
    """The arrays of the tree under `root`, which must live as long as the plan."""
    walk = list(root.walk())
    numbers = {id(node): i for i, node in enumerate(walk)}
    table = np.zeros(len(walk), dtype=NODE_DTYPE)
    members: list[tuple[int, int, int]] = []
    names = bytearray()
    for row, node in zip(table, walk, strict=True):
        row["kind"] = node.kind
        row["first"] = len(members)
        row["extra"] = row["element"] = row["value"] = -1
        if node.kind == STRUCT:
            row["count"] = len(node.members)
            row["extra"] = -1 if node.extra is None else numbers[id(node.extra)]
            for member in node.members:
                name = member.name.encode()
                members.append((numbers[id(member)], len(names), len(name)))
                names += name
        elif node.kind in (LIST, MAP):
            row["element"] = numbers[id(node.children[0])]
            row["value"] = numbers[id(node.children[-1])]
            row["cells"] = node.item_cells
    arrays = NodeArrays(
        readonly(table, NODE_DTYPE),
        readonly(np.array(members, dtype=MEMBER_DTYPE), MEMBER_DTYPE),
        readonly(np.frombuffer(bytes(names), dtype=np.uint8), np.uint8),
    )
    return NodePlan(arrays, numbers)
