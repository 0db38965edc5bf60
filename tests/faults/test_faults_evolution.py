"""Evolution while bridges die, run side by side, or have different rules: columns and rows end up as if alone."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.index.codec import decode_directory
from iceberg_catalog.connect.open import CatalogSettings, embedded_settings, open_catalog
from iceberg_catalog.evolve.table import GENERATION
from iceberg_catalog.failpoints import Order
from rsm_bridge.serving.service import Running
from tests.support.answering_server import answering
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.evolution_scenarios import Version, avro, record
from tests.support.evolving import check_step
from tests.support.kafka_log import LogBuilder
from tests.support.registry_answers import Schemas
from tests.support.s3_server import moto_server
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

ORDER = avro(record(id="int"), {"id": 1})
NAMED = avro(record(id="long", who="string"), {"id": 2**40, "who": "a"})
COUNT = 6


@dataclass(frozen=True)
class Registry:
    """A registry and what is registered: versions by schema id."""

    url: str
    schemas: Schemas

    def framed(self, version: Version) -> bytes:
        """A value of this version, which is registered."""
        number = 1 + len(self.schemas.by_id)
        self.schemas.by_id[number] = dict(version.registered)
        return version.framed(number)

    def settings(self, rules: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Of a bridge."""
        return {"topics": list(rules), "schema_registry": {"url": self.url, "request_timeout": "5s"}}


@pytest.fixture
def registry() -> Iterator[Registry]:
    schemas = Schemas()
    with answering() as server:
        server.answers = schemas.answer
        yield Registry(server.uri, schemas)


def segment(topic: str, values: Sequence[bytes], *, first: int = 0, partition: int = 0) -> Segment:
    log = LogBuilder(next_offset=first)
    log.batch(values)
    return segment_of(log, topic=topic, topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes, partition=partition)


def table_of(catalog: Catalog, topic: str) -> Table | None:
    found = catalog.load_table(("kafka", topic)) if catalog.table_exists(("kafka", topic)) else None
    return None if found is None or found.current_snapshot() is None else found


def rows_of(catalog: Catalog, topic: str, count: int) -> list[dict[str, Any]]:
    """All rows once there are so many, by partition and offset: their columns that are not null."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        table = table_of(catalog, topic)
        found[:] = [] if table is None else table.scan().to_arrow().to_pylist()
        return len(found) == count

    eventually(there, 60)
    found.sort(key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))
    assert {row.get("_kafka_error") for row in found} == {None}
    return [
        {name: value for name, value in row.items() if not name.startswith("_kafka_") and value is not None}
        for row in found
    ]


def check_history(table: Table) -> None:
    """No column ever went, narrowed or changed its id."""
    for before, after in pairwise(sorted(table.metadata.schemas, key=lambda schema: schema.schema_id)):
        check_step(before, after, before.highest_field_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_before_and_after_the_table_changes(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the request while a segment is copied; after it while the publisher makes up for what a copy had not."""
    faults, data, config = tmp_path / "faults", tmp_path / "data", tmp_path / "tierberg.yaml"
    faults.mkdir()
    monkeypatch.setenv("TIERBERG_FAULT_FOLDER", str(faults))
    rules: list[dict[str, Any]] = [
        {"pattern": "now", "value_format": "avro"},
        {"pattern": "later", "value_format": "avro", "decode_budget": 0},
    ]
    config.write_text(yaml.safe_dump({"publish_interval": "100ms", **registry.settings(rules)}))
    values = [registry.framed(ORDER), registry.framed(NAMED)]
    done: list[Segment] = []

    @contextmanager
    def serving() -> Iterator[tuple[BridgeProcess, ShimClient]]:
        arguments = ("--config", str(config), "--data-dir", str(data), "--listen", "127.0.0.1:0")
        with BridgeProcess(*arguments) as process, ShimClient(process.address) as shim:
            yield process, shim

    with closing(open_catalog(embedded_settings(data))) as catalog:
        with serving() as (process, shim):
            done += [shim.copied(segment(topic, values[:1])) for topic in ("now", "later")]
            assert [rows_of(catalog, topic, 1) for topic in ("now", "later")] == [[{"id": 1}]] * 2
            (faults / "before-evolve.fault").write_text(Order("kill", ("kafka.now",)).encode())
            with pytest.raises(ShimError):
                shim.copied(segment("now", values[1:], first=1))
            assert process.process.wait(30) == -signal.SIGKILL
        assert columns(catalog, "now") == ["id"]
        with serving() as (process, shim):
            (faults / "after-evolve.fault").write_text(Order("kill", ("kafka.later",)).encode())
            with suppress(ShimError):  # the publisher may be there before the answer
                done.append(shim.copied(segment("later", values[1:], first=1)))
            assert process.process.wait(30) == -signal.SIGKILL
        assert columns(catalog, "later") == ["id", "who"]
        with serving() as (process, shim):
            done.append(shim.copied(segment("now", values[1:], first=1)))
            for topic in ("now", "later"):
                assert rows_of(catalog, topic, 2) == [{"id": 1}, {"id": 2**40, "who": "a"}]
                assert columns(catalog, topic) == ["id", "who"]
                check_history(catalog.load_table(("kafka", topic)))
            assert all(shim.fetch(item) == item.data for item in done)
            assert process.stop() == 0


def columns(catalog: Catalog, topic: str) -> list[str]:
    fields = catalog.load_table(("kafka", topic)).schema().fields
    return [field.name for field in fields if not field.name.startswith("_kafka_")]


@dataclass(frozen=True)
class Two:
    """Two bridges on one store and one catalog, and a client of each."""

    bridges: tuple[Running, Running]
    shims: tuple[ShimClient, ShimClient]
    catalog: Catalog


@contextmanager
def two_bridges(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> Iterator[Two]:
    with moto_server() as s3, ExitStack() as stack:
        shared = folder / "shared"
        shared.mkdir()
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{shared / 'catalog.db'}",
            "warehouse": (shared / "warehouse").as_uri(),
            **s3.catalog_properties(),
        }
        common = {
            "store": {"url": f"s3://{s3.new_bucket('evolution')}/root", "options": s3.store_options()},
            "catalog": {"properties": properties},
        }
        bridges = [
            stack.enter_context(bridge_thread(test_settings(folder / name, **common, **settings)))
            for name, settings in (("one", first), ("two", second))
        ]
        shims = [stack.enter_context(ShimClient(bridge.address)) for bridge in bridges]
        catalog = stack.enter_context(closing(open_catalog(CatalogSettings("tierberg", properties))))
        yield Two((bridges[0], bridges[1]), (shims[0], shims[1]), catalog)


def pending_of(bridge: Running, given: Segment) -> str | None:
    found = list(bridge.store.list_after(f"index/{given.topic_id.hex()}/{given.partition}/"))
    last = max(found, key=lambda item: item.key)
    return decode_directory(bridge.store.read(last.key).data).summary.pending


def test_two_bridges_that_evolve_one_table_at_once(tmp_path: Path, registry: Registry) -> None:
    """Each of many versions has a field of its own, and every other one makes `id` wider."""
    settings = registry.settings([{"pattern": ".*", "value_format": "avro"}])
    versions = [
        avro(record(id="long" if n % 2 else "int", **{f"f{n}": "int"}), {"id": n, f"f{n}": n}) for n in range(2 * COUNT)
    ]
    values = [registry.framed(version) for version in versions]
    with two_bridges(tmp_path, settings, settings) as two:

        def copy(number: int) -> list[Segment]:
            mine = values[number::2]
            segments = [segment("race", [value], first=n, partition=number) for n, value in enumerate(mine)]
            return [two.shims[number].copied(item) for item in segments]

        with ThreadPoolExecutor(2) as pool:
            copied = list(pool.map(copy, (0, 1)))
        rows = rows_of(two.catalog, "race", len(values))
        assert rows == [version.row for version in (*versions[::2], *versions[1::2])]
        assert sorted(columns(two.catalog, "race")) == sorted(["id", *(f"f{n}" for n in range(len(versions)))])
        check_history(two.catalog.load_table(("kafka", "race")))
        for shim, segments in zip(reversed(two.shims), copied, strict=True):
            assert all(shim.fetch(item) == item.data for item in segments)


def test_two_bridges_with_different_rules(tmp_path: Path, registry: Registry) -> None:
    """The older rules neither add columns nor judge schemas: what they cannot place waits for the newer ones."""
    old = registry.settings([{"pattern": "mixed", "value_format": "avro", "incompatible": "dead-letter"}])
    new = registry.settings([{"pattern": "mixed", "value_format": "avro"}])
    other = avro(record(id="string"), {"id": "x"}, {"id__v2": "x"})
    first, more, another = (registry.framed(version) for version in (ORDER, NAMED, other))
    with two_bridges(tmp_path, {**old, "generation": 0}, {**new, "generation": 1}) as two:
        by_old, by_new = two.shims
        segments = [by_new.copied(segment("mixed", [first]))]
        assert rows_of(two.catalog, "mixed", 1) == [ORDER.row]
        segments.append(by_old.copied(segment("mixed", [first], first=1)))
        assert pending_of(two.bridges[0], segments[-1]) is None
        segments.append(by_old.copied(segment("mixed", [more, first], first=2)))
        assert "generation" in (pending_of(two.bridges[0], segments[-1]) or "")
        segments.append(by_old.copied(segment("mixed", [another], first=4)))
        # The newer bridge would look by itself within a minute; this copy tells it that there is something to do.
        segments.append(by_new.copied(segment("mixed", [another, more], first=5)))
        rows = rows_of(two.catalog, "mixed", 7)
        assert rows == [item.row for item in (ORDER, ORDER, NAMED, ORDER, other, other, NAMED)]
        table = two.catalog.load_table(("kafka", "mixed"))
        assert table.properties[GENERATION] == "1"
        check_history(table)
        assert all(by_old.fetch(item) == item.data == by_new.fetch(item) for item in segments)
