"""Nodes as flat arrays, which is what kernels read. A node's number is its place in the walk, parents first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from converter.kernel import readonly
from converter.types import UInt8Array
from converter.values import json_nodes as nodes
from converter.values.json_nodes import Node

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


@dataclass(frozen=True, slots=True)
class Plan:
    """One schema's arrays.

    Attributes:
        nodes: NODE_DTYPE.
        members: MEMBER_DTYPE; those of one STRUCT lie together.
        names: bytes of the names.
        numbers: number of each node.
    """

    nodes: np.ndarray
    members: np.ndarray
    names: UInt8Array
    numbers: dict[int, int]

    def number(self, node: Node) -> int:
        """Number of a node of the tree the plan was made from; the same object, not an equal one."""
        return self.numbers[id(node)]


def make_plan(root: Node) -> Plan:
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
        if node.kind == nodes.STRUCT:
            row["count"] = len(node.members)
            row["extra"] = -1 if node.extra is None else numbers[id(node.extra)]
            for member in node.members:
                name = member.name.encode()
                members.append((numbers[id(member)], len(names), len(name)))
                names += name
        elif node.kind in (nodes.LIST, nodes.MAP):
            row["element"] = numbers[id(node.children[0])]
            row["value"] = numbers[id(node.children[-1])]
            row["cells"] = node.item_cells
    return Plan(
        readonly(table, NODE_DTYPE),
        readonly(np.array(members, dtype=MEMBER_DTYPE), MEMBER_DTYPE),
        readonly(np.frombuffer(bytes(names), dtype=np.uint8), np.uint8),
        numbers,
    )
