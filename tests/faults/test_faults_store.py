"""Objects that the store damaged, cut or lost: a named error or the right bytes, through a real bridge."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from converter.types import IndexType
from rsm_bridge.serving.fetch.fetcher import Fetcher
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.object_store import ObjectStore
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

FLIPS = 2_100
KINDS = {"corrupt_object", "unsupported_version"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


#: Values of this topic are in the data file's columns alone.
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
PROVEN = {
    "pattern": "proven",
    "value_format": "avro",
    "value_schema": {"from": "inline", "text": json.dumps(SCHEMA)},
    "value_bytes": "proven",
}

FETCHERS: list[Fetcher] = []


class RememberedFetcher(Fetcher):
    """Lets a test empty the caches of the bridge."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        FETCHERS.append(self)


@pytest.fixture(scope="module")
def bridge(folder: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rsm_bridge.serving.service.Fetcher", RememberedFetcher)
        with bridge_thread(test_settings(folder, topics=[PROVEN])) as running:
            yield running


@pytest.fixture(scope="module")
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


def mixed_log() -> LogBuilder:
    """Rows, kept bytes, exact deltas: all that a fetch may have to read."""
    pick = random.Random(3)
    log = LogBuilder()
    for number in range(30):
        log.batch(
            [pick.choice([None, b"", b"text " * 9, pick.randbytes(70)]) for _ in range(6)],
            bad_crc=number % 9 == 4,
            compressed=number % 7 == 3,
            attributes=8 if number % 5 == 2 else 0,
        )
    return log


def typed_log() -> LogBuilder:
    """Values that their columns give back."""
    pick, schema, log = random.Random(4), fastavro.parse_schema(SCHEMA), LogBuilder()

    def value(number: int) -> bytes:
        out = io.BytesIO()
        tags = {f"t{n}": [pick.randrange(-9, 999) for _ in range(n)] for n in range(pick.randrange(4))}
        who, price = pick.choice([None, "", "Zoë" * 20]), Decimal(pick.randrange(-9999, 9999)) / 100
        order = {"id": number * 2**30, "who": who, "tags": tags, "paid": pick.random() < 0.5, "price": price}
        fastavro.schemaless_writer(out, schema, order)
        return out.getvalue()

    for number in range(30):
        log.batch([None if pick.random() < 0.1 else value(number) for _ in range(6)], compressed=number % 7 == 3)
    return log


def objects(bridge: Running, folder: Path, segment: Segment) -> list[Path]:
    return [
        folder / "store" / listed.key
        for root in ("index", "data", "kept")
        for listed in bridge.store.list_after(f"{root}/{segment.topic_id.hex()}/")
    ]


def forget(segment: Segment) -> None:
    """As after a restart: nothing is cached."""
    FETCHERS[-1].forget(segment.segment_id)


def flipped(data: bytes, pick: random.Random) -> bytes:
    at = pick.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << pick.randrange(8)]) + data[at + 1 :]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [0, 1, 2], ids=["index", "data", "kept"])
def test_flips_in_every_object(shim: ShimClient, bridge: Running, folder: Path, number: int) -> None:
    judge_flips(shim, bridge, folder, number, FLIPS // 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [0, 1], ids=["index", "data"])
def test_flips_where_values_are_columns_alone(shim: ShimClient, bridge: Running, folder: Path, number: int) -> None:
    judge_flips(shim, bridge, folder, number, FLIPS // 2, proven=True)


@pytest.mark.parametrize("number", [0, 1], ids=["index", "data"])
def test_some_flips_where_values_are_columns_alone(
    shim: ShimClient, bridge: Running, folder: Path, number: int
) -> None:
    judge_flips(shim, bridge, folder, number, 60, proven=True)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["index", "data", "kept"])
def test_some_flips_in_every_object(shim: ShimClient, bridge: Running, folder: Path, number: int) -> None:
    judge_flips(shim, bridge, folder, number, 40)


def outcome(call: Callable[[], bytes]) -> bytes | str:
    """What came, or the kind of the error."""
    try:
        return call()
    except ShimError as error:
        return str(error.kind)


def judge_flips(
    shim: ShimClient, bridge: Running, folder: Path, number: int, flips: int, *, proven: bool = False
) -> None:
    log = typed_log() if proven else mixed_log()
    segment = shim.copied(segment_of(log, topic="proven") if proven else segment_of(log))
    right = shim.fetch(segment)
    if proven:
        (data,) = (path for path in objects(bridge, folder, segment) if path.suffix == ".parquet")
        stored = pq.read_table(data, columns=["_kafka_value", "_kafka_value_size"])
        assert stored["_kafka_value"].null_count == len(stored) > stored["_kafka_value_size"].null_count > 0
    files = {kind: shim.fetch_index(segment, kind) for kind in (IndexType.OFFSET, IndexType.LEADER_EPOCH)}
    path = objects(bridge, folder, segment)[number]
    whole = path.read_bytes()
    pick = random.Random(number)
    named = 0
    for _ in range(flips):
        path.write_bytes(flipped(whole, pick))
        forget(segment)
        found = outcome(lambda: shim.fetch(segment))
        assert found == right or found in KINDS
        named += found in KINDS
        for kind, content in files.items() if number == 0 else ():
            found = outcome(partial(shim.fetch_index, segment, kind))
            assert found == content or found in KINDS
    assert named > flips // 4
    path.write_bytes(whole)
    forget(segment)
    assert shim.fetch(segment) == right


@pytest.mark.parametrize("number", [0, 1, 2], ids=["index", "data", "kept"])
def test_cut_and_emptied_objects(shim: ShimClient, bridge: Running, folder: Path, number: int) -> None:
    segment = shim.copied(segment_of(mixed_log()))
    path = objects(bridge, folder, segment)[number]
    whole = path.read_bytes()
    for size in (0, 1, 11, len(whole) // 3):
        path.write_bytes(whole[:size])
        forget(segment)
        with pytest.raises(ShimError) as failed:
            shim.fetch(segment)
        assert failed.value.kind in KINDS, failed.value


@pytest.mark.parametrize("number", [0, 1, 2], ids=["index", "data", "kept"])
def test_lost_objects_are_named(shim: ShimClient, bridge: Running, folder: Path, number: int) -> None:
    segment = shim.copied(segment_of(mixed_log()))
    objects(bridge, folder, segment)[number].unlink()
    forget(segment)
    with pytest.raises(ShimError) as failed:
        shim.fetch(segment)
    assert failed.value.kind in {"not_found", "corrupt_object"}, failed.value


def test_objects_of_another_segment_are_not_served(shim: ShimClient, bridge: Running, folder: Path) -> None:
    one, two = (shim.copied(segment_of(mixed_log())) for _ in range(2))
    paths, others = objects(bridge, folder, one), objects(bridge, folder, two)
    paths[0].write_bytes(others[0].read_bytes())
    forget(one)
    with pytest.raises(ShimError) as failed:
        shim.fetch(one)
    assert failed.value.kind == "corrupt_object", failed.value


def test_an_upload_the_store_cut_is_noticed(
    shim: ShimClient, bridge: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that says yes and has less: the copy fails, and no index names the object."""
    segment = segment_of(LogBuilder().fill(batches=5))
    real = ObjectStore.size

    def smaller(self: ObjectStore, key: str) -> int:
        return real(self, key) - key.startswith("data/")

    monkeypatch.setattr(ObjectStore, "size", smaller)
    with pytest.raises(ShimError) as failed:
        shim.copy(segment)
    assert failed.value.kind == "store_unavailable"
    assert objects(bridge, folder, segment) == []
