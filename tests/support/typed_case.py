"""One topic of typed values: its rule, its schema, its values, and the columns an independent decoder gives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal["wire", "latest", "inline", "inferred", "none"]

#: How a rule names them; "none": the format has no schema.
ORIGINS: Mapping[Source, str] = {
    "wire": "registry-id",
    "latest": "subject",
    "inline": "inline",
    "inferred": "inferred",
}


class Entries(list[tuple[Any, Any]]):
    """A map's entries as expected of a column; a plain dict is a struct."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A format, its schema, and values of every type it has.

    Attributes:
        format: as in a rule.
        schema: the text; empty for formats without.
        values: encoded, without wire-format header.
        columns: of one value, as an independent decoder and docs/types.md have it; dict: struct, Entries: map.
        imports: Protobuf: path and text of what the schema imports.
        indexes: what a wire-format header of this format has behind the schema's id.
        message: Protobuf: the message's full name.
    """

    format: str
    schema: str
    values: Sequence[bytes]
    columns: Callable[[bytes], dict[str, Any]]
    imports: Mapping[str, str] = field(default_factory=dict)
    indexes: bytes = b""
    message: str | None = None

    def framed(self, number: int, value: bytes) -> bytes:
        """In the wire format of schema registries."""
        return b"\0" + struct.pack(">I", number) + self.indexes + value

    def rule(self, pattern: str, source: Source) -> dict[str, Any]:
        """For the topics of this pattern."""
        rule: dict[str, Any] = {"pattern": pattern, "value_format": self.format}
        if source == "none":
            return rule
        rule["value_schema"] = {"from": ORIGINS[source]}
        if source == "inline":
            rule["value_schema"]["text"] = self.schema
        if source in {"latest", "inline"} and self.message is not None:
            rule["value_schema"]["message"] = self.message
        return rule
