"""Every small stored object, damaged in any way: what comes is the object, or the one error that is documented."""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from crc32c import crc32c

from converter.errors import SegmentError
from converter.index.codec import HEADER_SIZE, decode_directory
from iceberg_catalog.commit.state import decode_state, encode_state
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.hold import ReadTo
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage import lease
from rsm_bridge.storage.keys import IndexKey, state_key
from rsm_bridge.storage.projections.progress import (
    ProjectionFailure,
    ProjectionLoss,
    ProjectionProgress,
    ProjectionSize,
    decode_progress,
)
from rsm_bridge.storage.segments.undelete_record import Undeleted
from rsm_bridge.storage.segments.undelete_record import decode as decode_undelete
from rsm_bridge.storage.tombstone import Tombstone, decode_tombstone
from rsm_bridge.tables.maintain.drop_table import DropRecord, decode_drop
from tests.worlds.index_support import simple_batches, write

TOPIC = bytes(range(16))
TABLE = uuid.UUID(int=7)
KINDS = {"corrupt_object", "unsupported_version", "corrupt_state"}


@dataclass(frozen=True)
class Stored:
    """One kind of object: its bytes, how it is read, and how JSON of another content becomes such an object."""

    data: bytes
    read: Callable[[bytes], object]
    document: dict[str, Any]
    wrap: Callable[[bytes], bytes]


def tombstone() -> Stored:
    data = Tombstone(
        kind="deleted", time_ms=5, topic="orders", cluster_name="test", index=b"index", reclaiming=True, forgotten=True
    ).encode()
    length = int.from_bytes(data[5:9], "little")

    def wrap(text: bytes) -> bytes:
        body = data[:5] + len(text).to_bytes(4, "little") + text + b"index"
        return body + crc32c(body).to_bytes(4, "little")

    return Stored(data, decode_tombstone, json.loads(data[9 : 9 + length]), wrap)


def undelete() -> Stored:
    data = Undeleted(
        {0: 5}, frozenset({str(IndexKey(topic_id=TOPIC, partition=0, last=9, base=0, segment_id=bytes(16)))})
    ).encode()
    return Stored(data, lambda found: decode_undelete(found, TOPIC), json.loads(data), bytes)


def drop() -> Stored:
    states = {state_key(TABLE, "a" * 64, uuid.uuid4().hex): 7}
    record = DropRecord(
        table="kafka.orders",
        table_uuid=str(TABLE),
        topic_id=TOPIC.hex(),
        states=states,
        metadata={"file:///w/kafka/orders/metadata/x.avro": 9},
    )
    return Stored(record.encode(), lambda found: decode_drop(record.key, found), json.loads(record.encode()), bytes)


def leased() -> Stored:
    data = lease.Lease._version("somebody")
    return Stored(data, lease._holder, json.loads(data), bytes)


def progress() -> Stored:
    lost, failure = {0: ProjectionLoss(1, 2, 3)}, ProjectionFailure(1, "failed", "do this")
    made = ProjectionProgress(
        topic_id=TOPIC,
        catalog="c",
        table="a.b",
        read={0: ReadTo(5, 1, 2)},
        snapshot_id=1,
        succeeded_ms=2,
        caught_up_ms=None,
        size=ProjectionSize(1, 2, 3),
        failure=failure,
        lost=lost,
    )

    def wrap(text: bytes) -> bytes:
        try:
            document = json.loads(text)
            checksum = crc32c(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
        except (ValueError, RecursionError):
            checksum = 0
        return b'{"crc32c": %d, "progress": %s}' % (checksum, text)

    document = json.loads(made.encode())["progress"]
    return Stored(made.encode(), lambda found: decode_progress(found, made.key), document, wrap)


def state() -> Stored:
    part = PartState(
        frontier=10,
        floor=3,
        lineage=((0, 0), (2, 5)),
        known_end=10,
        peeked=((7, 4, True),),
        rewinds=((1, 7),),
        repairs=((1, 8),),
    )
    data, digest = encode_state({0: part, 5: PartState()})

    def read(found: bytes) -> object:
        # Half of the damage with the hash of what is there: somebody wrote it like that.
        same = len(found) % 2 and found != data
        return decode_state(found, hashlib.sha256(found).hexdigest() if same else digest)

    def wrap(text: bytes) -> bytes:
        return text if len(text) % 2 else text + b" "

    return Stored(data, read, json.loads(data), wrap)


def index() -> Stored:
    data = write([simple_batches(4)]).written.index
    size, json_size = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
    blocks = data[HEADER_SIZE + json_size : size]

    def wrap(text: bytes) -> bytes:
        whole = HEADER_SIZE + len(text) + len(blocks)
        head = data[:8] + whole.to_bytes(4, "little") + len(text).to_bytes(4, "little") + data[16:28]
        checksum = crc32c(text + blocks, crc32c(head))
        return head + checksum.to_bytes(4, "little") + text + blocks

    return Stored(data[:size], decode_directory, json.loads(data[HEADER_SIZE:][:json_size]), wrap)


OBJECTS = {made.__name__: made for made in (tombstone, undelete, drop, leased, progress, state, index)}


def tolerated(stored: Stored, data: bytes) -> None:
    """Fails unless reading ends with an object or with the documented error."""
    said: BridgeError | SegmentError | CatalogError | None = None
    try:
        stored.read(data)
    except (BridgeError, SegmentError, CatalogError) as error:
        said = error
    if said is not None:
        assert said.kind in KINDS, said
        assert len(str(said).encode()) < 1000


#: As JSON text, for some are none in Python.
NASTY = (
    *(b"null", b"true", b"-1", b"0", b"1.5", b"1e999", b"-1e999", b"NaN", b"Infinity", b"9223372036854775808"),
    *(b"9" * 5000, b'""', b'"x"', b'"\\ud800"', b'"\xff\xfe"', b'"' + b"y" * 10_000 + b'"'),
    *(b"[]", b"{}", b"[[]]", b"[null]", b'{"0": []}', b"[1, 2", b"", b"\x00"),
    *(b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000),
)
#: Names of fields, too.
NAMES = ('"-1"', '"x"', '"\\ud800"', '"99999999999999999999"', '"\u0661"')


def mutilated(document: object) -> Iterator[bytes]:
    """The document with each of its parts replaced by each nasty thing, and without each of its fields."""
    mark = "\u2620"
    for place in places(document):
        text = json.dumps(replaced(document, place, mark)).encode()
        for nasty in NASTY:
            yield text.replace(json.dumps(mark).encode(), nasty)
        if place and isinstance(place[-1], str):
            yield json.dumps(replaced(document, place, None, remove=True)).encode()
            for name in NAMES:
                yield text.replace(
                    json.dumps(place[-1]).encode() + b": " + json.dumps(mark).encode(), name.encode() + b": 1"
                )


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from places(entry, (*at, name))


def replaced(value: Any, at: tuple[str | int, ...], new: object, *, remove: bool = False) -> Any:
    if not at:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if remove and len(at) == 1:
        del copy[at[0]]
    else:
        copy[at[0]] = replaced(copy[at[0]], at[1:], new, remove=remove)
    return copy


@pytest.mark.parametrize("name", OBJECTS)
def test_undamaged_it_comes_back(name: str) -> None:
    stored = OBJECTS[name]()
    assert stored.read(stored.data) is not None
    text = json.dumps(stored.document).encode()
    assert stored.read(stored.wrap(text)) is not None


@pytest.mark.parametrize("name", OBJECTS)
def test_cut_anywhere(name: str) -> None:
    stored = OBJECTS[name]()
    for size in range(len(stored.data)):
        tolerated(stored, stored.data[:size])


@pytest.mark.parametrize("name", OBJECTS)
def test_flipped_anywhere(name: str) -> None:
    stored = OBJECTS[name]()
    draw = random.Random(name)
    for at in range(len(stored.data)):
        for bit in {0, 7, draw.randrange(8)}:
            damaged = bytearray(stored.data)
            damaged[at] ^= 1 << bit
            tolerated(stored, bytes(damaged))


@pytest.mark.parametrize("name", OBJECTS)
def test_noise(name: str) -> None:
    stored = OBJECTS[name]()
    draw = random.Random(name)
    for _ in range(500):
        damaged = bytearray(stored.data)
        start = draw.randrange(len(damaged))
        damaged[start : start + draw.randrange(20)] = draw.randbytes(draw.randrange(20))
        tolerated(stored, bytes(damaged))
        tolerated(stored, draw.randbytes(draw.randrange(200)))


@pytest.mark.parametrize("name", OBJECTS)
def test_any_content_under_a_right_checksum(name: str) -> None:
    stored = OBJECTS[name]()
    for text in mutilated(stored.document):
        tolerated(stored, stored.wrap(text))
