"""What lies in the store, damaged or replaced by somebody who can write there: index, pages, kept bytes, small objects.

With its checksums as they were, damage is an error or the right bytes. With checksums made anew the content is another
one, and what is promised is no more than an error of the documented kind within bounded time and memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import zstandard

from converter.batches.later_indexes import LaterAborts
from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.index.codec import decode_directory
from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.proof.proven import unpack_proven
from iceberg_catalog.commit.state import decode_state, encode_state
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.custom_metadata import CustomMetadata, decode_custom_metadata
from rsm_bridge.storage.lease import Lease
from rsm_bridge.storage.object_store import VersionedBytes
from rsm_bridge.storage.projections.progress import ProjectionProgress, decode_progress
from rsm_bridge.storage.segments.known import parse_checkpoint
from rsm_bridge.storage.segments.undelete_record import Undeleted
from rsm_bridge.storage.segments.undelete_record import decode as decode_undeleted
from rsm_bridge.storage.tombstone import Tombstone, decode_tombstone
from rsm_bridge.tables.maintain.drop_table import DropRecord, decode_drop
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import bent, bent_json, written
from tests.fuzz.outcome import worded
from tests.fuzz.target import MIB, Outcome, Target, WrongError
from tests.oracle.transactions import producer_snapshot, transaction_index
from tests.worlds.index_support import Batch, Record, Stored, write

_HEADER = struct.Struct("<4sHHIIIQI")


@cache
def _segment() -> Stored:
    """A segment with some of everything."""
    rng = random.Random(5)
    batches = []
    for i in range(12):
        records = [
            Record(k, rng.randrange(50), rng.choice((None, b"", b"key")), rng.choice((None, b"", b"text %d " % k * 20)))
            for k in range(5)
        ]
        batch = Batch(i * 5, records, 4, producer_id=i % 3, base_sequence=i, exact=i % 5 == 0)
        batch.kept = i % 7 == 3
        batches.append(batch)
    return write([batches[:7], batches[7:]], "string")


def _served(stored: Stored) -> str:
    """`same`, or the words of the error."""
    try:
        directory = decode_directory(stored.written.index)
        back = replace(stored, written=replace(stored.written, directory=directory)).read_all(2000)
    except SegmentError as error:
        if error.kind not in ("corrupt_object", "unsupported_version"):
            raise
        return worded(error)
    return "same" if back == _segment().served else "other bytes"


class Damage(Target):
    """One object of a segment is damaged: an error, or the right bytes."""

    memory_bytes_max = 64 * MIB

    def __init__(self, part: str) -> None:
        self.name = f"damage-{part}"
        self._part = part

    def prepare(self) -> None:
        if _served(_segment()) != "same":
            raise WrongError("an undamaged segment is not served")

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        stored = _segment()
        whole = stored.written.index if self._part == "index" else getattr(stored, self._part)
        return bent(rng.choice(corpus) if corpus and rng.random() < 0.2 else whole, rng)

    def run(self, data: bytes) -> Outcome:
        stored = _segment()
        if self._part == "index":
            stored = replace(stored, written=replace(stored.written, index=data))
        else:
            stored = replace(stored, data=data) if self._part == "data" else replace(stored, kept=data)
        words = _served(stored)
        if words == "other bytes":
            raise WrongError("damage is served as if it were the record batches")
        return Outcome(words)


class ForgedIndex(Target):
    """Another index under valid checksums of the directory: JSON, block table and header say what they like."""

    name = "forged-index"
    memory_bytes_max = 128 * MIB

    def prepare(self) -> None:
        _served(_segment())  # kernels compile

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        whole = _segment().written.index
        _, version, flags, size, json_size, count, total, _ = _HEADER.unpack_from(whole)
        text = whole[_HEADER.size : _HEADER.size + json_size]
        table = whole[_HEADER.size + json_size : size]
        if rng.random() < 0.6:
            text = written(bent_json(json.loads(text), rng), rng)
        if rng.random() < 0.5:
            table = bent(table, rng)
        if rng.random() < 0.1:
            count, total = rng.choice(((count + 1, total), (0, total), (2**32 - 1, total), (count, 0), (count, 2**63)))
        head = _HEADER.pack(b"TBIX", version, flags, _HEADER.size + len(text) + len(table), len(text), count, total, 0)
        crc = crc32c.crc32c(text + table, crc32c.crc32c(head[:-4]))
        return head[:-4] + struct.pack("<I", crc) + text + table + whole[size:]

    def run(self, data: bytes) -> Outcome:
        return Outcome(_served(replace(_segment(), written=replace(_segment().written, index=data))))


def _with_crc(body: bytes) -> bytes:
    return body + struct.pack("<I", crc32c.crc32c(body))


def _tombstone(rng: random.Random) -> bytes:
    whole = Tombstone(
        kind="deleted",
        time_ms=5,
        topic="topic",
        cluster_name="cluster",
        index=b"index",
        reclaiming=True,
        forgotten=True,
    ).encode()
    length = int.from_bytes(whole[5:9], "little")
    text = written(bent_json(json.loads(whole[9 : 9 + length]), rng), rng)
    return _with_crc(whole[:5] + struct.pack("<I", len(text)) + text + b"index")


def _document(make: Callable[[], bytes]) -> Callable[[random.Random], bytes]:
    return lambda rng: written(bent_json(json.loads(make()), rng), rng)


def _state() -> bytes:
    part = PartState(frontier=12, floor=3, lineage=((0, 0), (4, 7)), known_end=15)
    return encode_state({0: part, 7: part})[0]


def _progress(rng: random.Random) -> bytes:
    document = bent_json(
        json.loads(ProjectionProgress(topic_id=bytes(16), catalog="c", table="n.t").encode())["progress"], rng
    )
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    return b'{"crc32c":%d,"progress":%s}' % (crc32c.crc32c(data), data)


def _metadata(rng: random.Random) -> bytes:
    whole = CustomMetadata(attempt=bytes(16), index_size=1, directory_size=2, data_size=3, kept_size=4).encode()
    return _with_crc(bent(whole[:-4], rng))


_INDEX = f"index/{bytes(16).hex()}/0/{9:020d}-{0:020d}-{bytes(16).hex()}"

_TABLE_UUID = "00000000-0000-0000-0000-000000000007"
_DROP = DropRecord(
    table="n.t", table_uuid=_TABLE_UUID, topic_id=bytes(16).hex(), states={}, metadata={"s3://b/t/metadata/1.avro": 5}
)
_LEASE = b'{"holder": "free", "version": "00"}'


class _OneObject:
    """A store that holds a lease, and takes whatever is put."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, key: str) -> VersionedBytes:
        return VersionedBytes(self._data, "1")

    def replace(self, key: str, data: bytes, version: str) -> bool:
        return True


def _lease(data: bytes) -> object:
    store: Any = _OneObject(data)
    return Lease(store=store, key="key", holder="holder", clock=lambda: 0.0).acquire()


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


@cache
def _proven_text() -> str:
    """What the index says of values that columns alone hold: an encoding of Avro and one of JSON."""
    made = (
        (
            avro_decoder(
                '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}'
            ),
            b"\2\4xy",
        ),
        (json_decoder('{"type":"object","properties":{"a":{"type":"integer"}}}'), b'{"a":1}'),
    )
    encodings = []
    for decoder, value in made:
        encoding = decoder.encoding(pa.array([value] * 3, pa.binary()))
        if encoding is None:
            raise WrongError(f"{value!r} has no encoding")
        columns = _schema_text(pa.schema(list(decoder.type)))
        parameters = dict(encoding.parameters)
        item = {"header": "00", "kind": encoding.kind, "version": encoding.version, "parameters": parameters}
        encodings.append({**item, "columns": columns})
    return json.dumps({"schema": _schema_text(pa.schema([("a", pa.int64())])), "encodings": encodings})


def _proven() -> bytes:
    return zstandard.compress(_proven_text().encode())


def _forged_proven(rng: random.Random) -> bytes:
    document = json.loads(_proven_text())
    if rng.random() < 0.3:
        raw = bent(base64.b64decode(document["schema"]), rng)
        document["schema"] = base64.b64encode(raw).decode("ascii")
    elif rng.random() < 0.5:
        parameters = rng.choice(document["encodings"])["parameters"]
        name = rng.choice(sorted(parameters))
        parameters[name] = bent(parameters[name].encode(), rng).decode("utf-8", "replace")
    else:
        document = bent_json(document, rng)
    return zstandard.compress(written(document, rng))


_SMALL: dict[str, tuple[Callable[[], bytes], Callable[[random.Random], bytes], Callable[[bytes], object]]] = {
    "tombstone": (
        lambda: Tombstone(kind="deleted", time_ms=5, topic="t", cluster_name="c", index=b"i").encode(),
        _tombstone,
        decode_tombstone,
    ),
    "undelete": (
        lambda: Undeleted({3: 7}, frozenset({_INDEX})).encode(),
        _document(lambda: Undeleted({3: 7, 4: 0}, frozenset({_INDEX})).encode()),
        lambda data: decode_undeleted(data, bytes(16)),
    ),
    "state": (_state, _document(_state), lambda data: decode_state(data, hashlib.sha256(data).hexdigest())),
    "progress": (
        lambda: ProjectionProgress(topic_id=bytes(16), catalog="c", table="n.t").encode(),
        _progress,
        lambda data: decode_progress(data, ProjectionProgress(topic_id=bytes(16), catalog="c", table="n.t").key),
    ),
    "drop": (
        _DROP.encode,
        _document(lambda: replace(_DROP, states={f"states/{_TABLE_UUID}/x": 3}).encode()),
        lambda data: decode_drop(_DROP.key, data),
    ),
    "lease": (lambda: _LEASE, _document(lambda: _LEASE), _lease),
    "proven": (_proven, _forged_proven, unpack_proven),
    "custom-metadata": (
        lambda: CustomMetadata(attempt=bytes(16), index_size=1, directory_size=2, data_size=3, kept_size=4).encode(),
        _metadata,
        decode_custom_metadata,
    ),
}


class SmallObjects(Target):
    """Every small object: what is read, or its documented error."""

    name = "small-objects"
    memory_bytes_max = 64 * MIB

    def prepare(self) -> None:
        for kind, (whole, _, _) in _SMALL.items():
            self.run(packed({"kind": kind}, [whole()]))  # encoders compile

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        kind = rng.choice(sorted(_SMALL))
        whole, forged, _ = _SMALL[kind]
        return packed({"kind": kind}, [bent(whole(), rng) if rng.random() < 0.4 else forged(rng)])

    def run(self, data: bytes) -> Outcome:
        facts, (content,) = unpacked(data)
        try:
            found = _SMALL[facts["kind"]][2](content)
        except (BridgeError, CatalogError, SegmentError) as error:
            if error.kind not in ("corrupt_object", "unsupported_version", "corrupt_state", "foreign_segment"):
                raise
            return Outcome(f"{facts['kind']} {worded(error)}")
        return Outcome(f"{facts['kind']} {type(found).__name__}")


class KafkaFiles(Target):
    """The files beside a log: whatever they hold, a copy goes on; only the checkpoint's reader may refuse."""

    name = "kafka-files"
    memory_bytes_max = 64 * MIB

    def prepare(self) -> None:
        for seed in range(20):
            self.run(self.make(random.Random(seed), ()))

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        count = rng.randrange(5) if rng.random() < 0.998 else 60_000
        producers = (1, 2, 2**40) if count < 5 else range(2**20)
        entries = [(rng.choice(producers), rng.randrange(50), 50 + rng.randrange(9)) for _ in range(count)]
        index = transaction_index(entries)
        snapshot = producer_snapshot([(producer, first) for producer, first, _ in entries])
        if rng.random() < 0.5:
            body = bent(snapshot[6:], rng)
            snapshot = struct.pack(">hI", 1, crc32c.crc32c(body)) + body
        checkpoint = b"0\n%d\n" % len(entries) + b"".join(b"%d %d\n" % (n, 10 * n) for n in range(len(entries)))
        files = (index, snapshot, checkpoint, transaction_index(entries))
        return packed({}, [bent(file, rng) if rng.random() < 0.4 else file for file in files])

    def run(self, data: bytes) -> Outcome:
        _, (index, snapshot, checkpoint, later) = unpacked(data)
        found = Transactions.parse(index, snapshot)
        try:
            runs = str(len(parse_checkpoint(checkpoint)))
        except ValueError:
            runs = "refused"
        peeked = LaterAborts.parse((later,), complete=True).peek(found, 49)
        ends = np.unique(peeked.ends()).tolist()
        return Outcome(f"known {found.known} {len(found.aborted)} {len(found.opened)} {ends} checkpoint {runs}")
