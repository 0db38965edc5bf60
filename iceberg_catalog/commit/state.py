"""The recorded state of all partitions of one table, as one immutable object, named by its content and its commit.

It is not in the snapshot's summary itself: a thousand partitions over twenty kept snapshots would outgrow
metadata.json. The summary names the object and its SHA-256; the object is put before the commit that names it.

JSON: `{"version": 1, "partitions": {"0": {"frontier": 10, "floor": 0, "lineage": [[0, 0]], "known_end": 10}}}`, with
`"peeked": [[7, 4, true]]` (producer id, first offset, committed), `"rewinds": [[1, 7]]` and `"repairs": [[1, 7]]` (how
many there had been, offset) where there is something to remember; keys sorted, no spaces, so equal states give equal
names. `lineage` is what plan/lineage_record.py records, with epoch -1 for a hole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from converter import stored_json
from converter.stored_json import field, fields, listed, truth, whole
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import STATE_BYTES_MAX
from iceberg_catalog.plan.types import PartState

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StateRef:
    """Where a recorded state lies: the object's key under the store's root, and its SHA-256 in hex."""

    key: str
    sha256: str


def encode_state(states: Mapping[int, PartState]) -> tuple[bytes, str]:
    """The object's bytes and their SHA-256 in hex.

    Raises:
        CatalogError: `corrupt_state` if it would be larger than STATE_BYTES_MAX and could not be read again.
    """
    partitions = {
        str(partition): {
            "frontier": state.frontier,
            "floor": state.floor,
            "lineage": [list(entry) for entry in state.lineage],
            "known_end": state.known_end,
            **{
                name: [list(entry) for entry in entries]
                for name, entries in (("peeked", state.peeked), ("rewinds", state.rewinds), ("repairs", state.repairs))
                if entries
            },
        }
        for partition, state in states.items()
    }
    document = {"version": _VERSION, "partitions": partitions}
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    if len(data) > STATE_BYTES_MAX:
        raise CatalogError(
            "corrupt_state",
            f"the state of {len(states)} partitions would have {len(data)} bytes, the limit is {STATE_BYTES_MAX}: the "
            "topic has more partitions than one table carries",
        )
    return data, hashlib.sha256(data).hexdigest()


def decode_state(data: bytes, sha256: str) -> dict[int, PartState]:
    """State per Kafka partition.

    Raises:
        CatalogError: `corrupt_state` if the bytes do not have this hash, are too large, or do not parse.
    """
    if len(data) > STATE_BYTES_MAX or hashlib.sha256(data).hexdigest() != sha256:
        raise CatalogError("corrupt_state", f"{len(data)} bytes of state do not match SHA-256 {sha256}")
    try:
        document = stored_json.parse(data)
        if (version := stored_json.field(document, "version")) != _VERSION:
            raise CatalogError("corrupt_state", f"state version {ascii(version)[:40]} is not known")
        partitions = stored_json.numbered(stored_json.field(document, "partitions"))
        return {partition: _part_state(entry) for partition, entry in partitions.items()}
    except ValueError as error:
        raise CatalogError("corrupt_state", f"the state does not parse: {error}") from error


def _part_state(entry: object) -> PartState:
    frontier, floor, known_end = (whole(field(entry, name)) for name in ("frontier", "floor", "known_end"))
    found = fields(entry)
    return PartState(
        frontier=frontier,
        floor=floor,
        lineage=_pairs(found.get("lineage")),
        known_end=known_end,
        peeked=tuple(
            (whole(producer), whole(first), truth(committed))
            for producer, first, committed in (listed(item, 3) for item in listed(found.get("peeked", [])))
        ),
        rewinds=_pairs(found.get("rewinds", [])),
        repairs=_pairs(found.get("repairs", [])),
    )


def _pairs(value: object) -> tuple[tuple[int, int], ...]:
    return tuple((whole(one), whole(two)) for one, two in (listed(item, 2) for item in listed(value)))
