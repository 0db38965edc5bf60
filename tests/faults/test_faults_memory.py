"""Four bombs of each kind at once on one bridge beside consumers: memory stays inside the configured sum.

A bomb is a segment of a few KB whose batches or values would become gigabytes. What goes over is its rows' problem,
with a cause, and never the copy's; other topics are copied and read meanwhile.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
import zstandard

from converter.types import IndexType
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.config.settings import LimitSettings
from rsm_bridge.limits import COPY_FILES_BYTES_MAX, LARGE_FILES_BYTES, MIB
from tests.faults.test_faults_resources import peak_bytes, warmed
from tests.faults.test_faults_segments import batch
from tests.oracle.transactions import producer_snapshot
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, varint
from tests.support.shim_client import Segment, ShimClient, segment_of
from tierberg.stack.servers.bridge import Bridge

BOMBS = 4
CONSUMERS = 20
FETCH_SECONDS_MAX = 0.5
COLUMNS = 400
LIMITS = LimitSettings()

_NULLABLE = [{"name": f"f{n}", "type": ["null", "int"]} for n in range(COLUMNS)]
_ITEM = {"type": "array", "items": ["null", {"type": "record", "name": "W", "fields": _NULLABLE}]}
_AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "l", "type": _ITEM}]})
_FLAT = json.dumps({"type": "record", "name": "R", "fields": _NULLABLE})
_MEMBERS = {f"f{n}": {"type": "integer"} for n in range(COLUMNS)}
_JSON = json.dumps({"properties": {"l": {"type": "array", "items": {"type": "object", "properties": _MEMBERS}}}})
_WIDE = json.dumps({"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(1980)}})
_PROTOBUF = (
    f'syntax = "proto3"; message R {{ repeated W l = 1; '
    f"message W {{ {' '.join(f'int32 f{n} = {n + 1};' for n in range(COLUMNS))} }} }}"
)
_NULLS = {"name": "a", "type": {"type": "array", "items": ["null", "boolean"]}}
_LISTS = json.dumps({"type": "record", "name": "R", "fields": [_NULLS]})
_MANY = [{"name": f"c{n}", "type": ["null", "long"]} for n in range(1900)]
_WIDE_LISTS = json.dumps({"type": "record", "name": "R", "fields": [_NULLS, *_MANY]})
_TREE = json.dumps(
    {"type": "record", "name": "T", "fields": [{"name": "n" * 500, "type": {"type": "array", "items": "T"}}]}
)


def record(offset: int, value: bytes, headers: bytes = b"\0") -> bytes:
    body = b"\0\0" + varint(offset) + b"\x01" + varint(len(value)) + value + headers
    return varint(len(body)) + body


def packed(*records: bytes) -> bytes:
    plain = b"".join(records)
    return batch("zstd", zstandard.ZstdCompressor(3).compress(plain), last=len(records) - 1, count=len(records))


def values(value: bytes, count: int) -> bytes:
    return packed(*(record(number, value) for number in range(count)))


def batches(*, count: int, size: int) -> bytes:
    one = packed(record(0, bytes(size)))
    return b"".join(number.to_bytes(8, "big") + one[8:] for number in range(count))


def lists_of_nulls(count: int, *, wide: int = 0, before: int = 0) -> bytes:
    """Batches of one value each, a list of 900,000 nulls; `before`: batches of 200 values without, beforehand."""
    empty = values(bytes(1 + wide), 200)
    full = packed(record(0, long(900_000) + bytes(900_001 + wide)))
    first = b"".join((200 * number).to_bytes(8, "big") + empty[8:] for number in range(before))
    return first + b"".join((200 * before + number).to_bytes(8, "big") + full[8:] for number in range(count))


def tombstone(offset: int) -> bytes:
    body = b"\0\0" + varint(offset) + b"\x01\x01\0"
    return varint(len(body)) + body


def tombstones(first: bytes, *, count: int, each: int) -> bytes:
    """A row, and batches of records without key and value."""
    one = packed(*(tombstone(number) for number in range(each)))
    rest = [(1 + number * each).to_bytes(8, "big") + one[8:] for number in range(count)]
    return packed(record(0, first)) + b"".join(rest)


def long(value: int) -> bytes:
    return varint(value)


@dataclass(frozen=True)
class Bomb:
    """A segment, its topic's rule, and what must be said of its rows.

    Attributes:
        offsets: that the segment has.
        says: the codes of dead letters, or the causes of quarantined batches, one of which must be counted; empty: all
            its rows are well.
        large: whether they may take turns with the memory for large work.
        late: whether their columns follow when they are published.
    """

    data: Callable[[], bytes]
    offsets: int
    rule: dict[str, Any]
    says: str = ""
    large: bool = True
    late: bool = False


def inline(form: str, text: str) -> dict[str, Any]:
    return {"value_format": form, "value_schema": {"from": "inline", "text": text}}


def proven(text: str) -> dict[str, Any]:
    return {**inline("avro", text), "value_bytes": "proven", "decode_budget": 64}


RAW: dict[str, Any] = {"value_format": "raw"}
KINDS: dict[str, Bomb] = {
    "zeros beyond the limit": Bomb(lambda: packed(record(0, bytes(300 * MIB))), 1, RAW, "decompression_limit"),
    "zeros below the limit": Bomb(lambda: packed(record(0, bytes(255 * MIB))), 1, RAW),
    "many batches of zeros": Bomb(lambda: batches(count=40, size=32 * MIB), 40, RAW),
    "text of zeros with a bad byte": Bomb(
        lambda: packed(record(0, bytes(120 * MIB)), record(1, b"\xff" * MIB)), 2, {"value_format": "string"}
    ),
    "records beyond the limit": Bomb(lambda: values(b"", 4_300_000), 4_300_000, RAW, "decompression_limit"),
    "records below the limit": Bomb(lambda: values(b"", 3_000_000), 3_000_000, RAW),
    "headers beyond the limit": Bomb(
        lambda: packed(record(0, b"", varint(20_000_000) + b"\0\1" * 20_000_000)), 1, RAW, "decompression_limit"
    ),
    "headers below the limit": Bomb(lambda: packed(record(0, b"", varint(4_000_000) + b"\0\1" * 4_000_000)), 1, RAW),
    "headers without a name": Bomb(lambda: packed(record(0, b"", varint(1_500_000) + b"\2\xff\1" * 1_500_000)), 1, RAW),
    "avro beyond the limit": Bomb(
        lambda: values(long(500_000) + b"\0" * 500_000 + b"\0", 50), 50, inline("avro", _AVRO), "out_of_range"
    ),
    "avro below the limit": Bomb(lambda: values(long(10_000) + b"\0" * 10_000 + b"\0", 30), 30, inline("avro", _AVRO)),
    "avro many below the limit": Bomb(
        lambda: values(long(10_000) + b"\0" * 10_000 + b"\0", 1000), 1000, inline("avro", _AVRO), "out_of_range"
    ),
    "avro rows of nulls": Bomb(lambda: values(bytes(COLUMNS), 200_000), 200_000, inline("avro", _FLAT)),
    "lists of nulls": Bomb(lambda: lists_of_nulls(150), 150, proven(_LISTS), large=False),
    "wide table of lists of nulls": Bomb(
        lambda: lists_of_nulls(60, wide=1900, before=62), 12_460, proven(_WIDE_LISTS), large=False
    ),
    "avro trees": Bomb(lambda: values(long(400_000) + bytes(400_001), 20), 20, inline("avro", _TREE), "out_of_range"),
    "json beyond the limit": Bomb(
        lambda: values(b'{"l":[' + b"{}," * 170_000 + b"{}]}", 30), 30, inline("json", _JSON), "out_of_range"
    ),
    "json below the limit": Bomb(lambda: values(b'{"l":[' + b"{}," * 10_000 + b"{}]}", 30), 30, inline("json", _JSON)),
    "json many below the limit": Bomb(
        lambda: values(b'{"l":[' + b"{}," * 10_000 + b"{}]}", 1000), 1000, inline("json", _JSON), "out_of_range"
    ),
    "json deep": Bomb(
        lambda: values(b'{"x":' + b"[" * 90 + b"1," * 300_000 + b"1" + b"]" * 90 + b',"x":1}', 20),
        20,
        inline("json", _JSON),
        "out_of_range",
    ),
    "protobuf beyond the limit": Bomb(
        lambda: values(b"\x0a\0" * 250_000, 30), 30, inline("protobuf", _PROTOBUF), "out_of_range"
    ),
    "protobuf below the limit": Bomb(lambda: values(b"\x0a\0" * 10_000, 30), 30, inline("protobuf", _PROTOBUF)),
    "protobuf many below the limit": Bomb(
        lambda: values(b"\x0a\0" * 10_000, 1000), 1000, inline("protobuf", _PROTOBUF), "out_of_range"
    ),
    "tombstones in a wide table": Bomb(
        lambda: tombstones(b'{"f1":1}', count=5, each=8_000), 40_001, inline("json", _WIDE), large=False
    ),
    "wide tables whose columns follow": Bomb(
        lambda: lists_of_nulls(60, wide=1900, before=62),
        12_460,
        {**proven(_WIDE_LISTS), "decode_budget": 0},
        large=False,
        late=True,
    ),
}
#: In the fast suite; all of them in the slow one.
SAMPLE = ("headers beyond the limit", "avro beyond the limit", "json beyond the limit")


def allowed(kind: str) -> int:
    """What docs/operations.md says of memory beyond an idle bridge, without the caches, which hardly fill here."""
    large = LIMITS.large_work_mib if KINDS[kind].large else 0
    # Columns of kinds before it may still follow, once their budget has grown again.
    return (LIMITS.copy_memory_mib + LIMITS.rewriting_mib + large) * MIB


@dataclass(frozen=True)
class Idle:
    """A bridge, and what it takes when it is warm and has nothing to do, in bytes."""

    bridge: Bridge
    bytes: int


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Idle]:
    rules = [{"pattern": topic_of(kind) + ".*", **bomb.rule} for kind, bomb in KINDS.items()]
    made = Bridge(tmp_path_factory.mktemp("bombs") / "bridge", {"publish_interval": "1s", "topics": rules})
    made.start()
    with ShimClient(made.target) as shim:
        warmed(shim)
    yield Idle(made, peak_bytes(made))
    made.stop()


def forget_peak(bridge: Bridge) -> None:
    """VmHWM is from now on (proc(5), clear_refs)."""
    Path(f"/proc/{bridge.process.pid}/clear_refs").write_text("5")


def topic_of(kind: str) -> str:
    return kind.replace(" ", "-")


def segments(kind: str) -> list[Segment]:
    bomb = KINDS[kind]
    data = bomb.data()
    plain = segment_of(LogBuilder().fill(batches=1))
    name = topic_of(kind)
    return [
        replace(
            plain,
            data=data,
            start_offset=0,
            end_offset=bomb.offsets - 1,
            topic=f"{name}-{number}",
            topic_id=f"{number}{name}".encode().ljust(16, b".")[:15] + bytes([list(KINDS).index(kind)]),
            segment_id=plain.segment_id[:14] + bytes([number, list(KINDS).index(kind)]),
        )
        for number in range(BOMBS)
    ]


@dataclass
class Consumers:
    """Read one segment again and again, each a little later than the one before."""

    target: str
    segment: Segment
    slowest: float = 0.0
    fetches: int = 0
    failed: str = ""

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(CONSUMERS)]

    def _read(self) -> None:
        with ShimClient(self.target) as shim:
            # Each at least once, also beside what ends at once.
            while not self.fetches or not self._end.wait(0.5):
                started = time.monotonic()
                try:
                    same = shim.fetch(self.segment) == self.segment.data
                except Exception as error:  # noqa: BLE001
                    self.failed = repr(error)
                    return
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.fetches += 1
                self.failed = self.failed if same else "other bytes"

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)


def copied(bridge: Bridge, segment: Segment) -> Segment:
    with ShimClient(bridge.target, timeout=500) as shim:
        return shim.copied(segment)


def rows_of(folder: Path, topics: Sequence[str]) -> int:
    """That the tables of these topics have together."""
    catalog = open_catalog(embedded_settings(folder))

    def rows(topic: str) -> int:
        name = ("kafka", topic.replace("-", "_"))
        snapshot = catalog.load_table(name).current_snapshot() if catalog.table_exists(name) else None
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    with closing(catalog):
        return sum(map(rows, topics))


def await_rows(bridge: Bridge, topics: Sequence[str], count: int) -> None:
    """Returns once the tables of these topics have so many rows together.

    Asked by a process of its own: metadata of a wide table takes the interpreter for a third of a second, and here the
    consumers' times with it.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        eventually(lambda: pool.submit(rows_of, bridge.folder, topics).result() == count, 300)


def run(idle: Idle, kind: str) -> tuple[int, Consumers]:
    """Peak above idle in bytes, and the consumers."""
    bridge = idle.bridge
    with ShimClient(bridge.target) as shim:
        read = shim.copied(segment_of(LogBuilder().fill(batches=50, size=2_000)))
    forget_peak(bridge)
    bombs = segments(kind)
    started = time.monotonic()
    with Consumers(bridge.target, read) as consumers, ThreadPoolExecutor(BOMBS + 1) as pool:
        running = [pool.submit(copied, bridge, bomb) for bomb in bombs]
        others = 0
        while not all(one.done() for one in running):
            copied(bridge, segment_of(LogBuilder().fill(batches=5, size=200), topic="other", topic_id=b"o" * 16))
            others += 1
            time.sleep(0.2)
        done = [one.result() for one in running]
        if KINDS[kind].late:
            await_rows(bridge, [bomb.topic for bomb in bombs], BOMBS * KINDS[kind].offsets)
    seconds = time.monotonic() - started
    peak = peak_bytes(bridge) - idle.bytes
    assert len({segment.segment_id for segment in done}) == BOMBS
    assert others
    print(
        f"{kind}: {len(bombs[0].data):,} bytes, {peak / MIB:.0f} MiB above idle in {seconds:.0f} s, slowest of "
        f"{consumers.fetches} fetches {consumers.slowest * 1000:.0f} ms, {others} other copies"
    )
    return peak, consumers


def check(idle: Idle, kind: str) -> Consumers:
    bridge = idle.bridge
    says = KINDS[kind].says
    names = (("tierberg_dead_letters_total", "code"), ("tierberg_quarantined_batches_total", "cause"))
    before = {name: bridge.metric(name, **{label: says} if says else {}) for name, label in names}
    peak, consumers = run(idle, kind)
    assert peak <= allowed(kind), f"{peak / MIB:.0f} MiB"
    assert not consumers.failed
    assert consumers.fetches
    assert bridge.metric("tierberg_verbatim_segments_total") == 0
    after = {name: bridge.metric(name, **{label: says} if says else {}) for name, label in names}
    assert (after != before) == bool(says), f"{before} before, {after} after"
    assert "Traceback" not in bridge.process.output()
    return consumers


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", SAMPLE)
def test_four_bombs_at_once(idle: Idle, kind: str) -> None:
    check(idle, kind)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_large_files_beside_the_log_of_four_copies_at_once_are_in_memory_one_after_another(tmp_path: Path) -> None:
    """Each takes three times its files for a moment."""
    limits = LimitSettings(decompressed_batch_mib=16)
    bridge = Bridge(tmp_path / "bridge", {"limits": {"decompressed_batch_mib": 16}})
    snapshot = producer_snapshot([(number, -1) for number in range(COPY_FILES_BYTES_MAX // 48)])
    assert COPY_FILES_BYTES_MAX * 0.9 < len(snapshot) < COPY_FILES_BYTES_MAX - MIB
    log = LogBuilder().fill(batches=2)
    bombs = [segment_of(log, files={IndexType.PRODUCER_SNAPSHOT: snapshot}) for _ in range(BOMBS)]
    bridge.start()
    try:
        with ShimClient(bridge.target) as shim:
            warmed(shim)
        before = peak_bytes(bridge)
        with ThreadPoolExecutor(BOMBS) as pool:
            done = list(pool.map(lambda bomb: copied(bridge, bomb), bombs))
        peak = peak_bytes(bridge) - before
        print(f"four times {len(snapshot) / MIB:.0f} MiB of files: {peak / MIB:.0f} MiB above idle")
        assert all(segment.custom_metadata for segment in done)
        # One copy's place, what its files take, and a place for each other one.
        assert peak <= len(snapshot) + LARGE_FILES_BYTES + limits.copy_memory_mib * MIB // 2
    finally:
        bridge.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_four_bombs_of_each_kind_at_once_delay_nobody(idle: Idle, kind: str) -> None:
    assert check(idle, kind).slowest <= FETCH_SECONDS_MAX
