"""Every format of values beside every format of keys, through a real bridge: columns, errors, Kafka's bytes.

Once while the segment is copied and once by a derived file, where the copy had no time to decode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from converter.values.text import TextDecoder
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.errors import SettingsError
from rsm_bridge.serving.service import Running
from rsm_bridge.status.verify.store import verify_store
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.evolution_scenarios import avro, record
from tests.support.kafka_log import LogBuilder, encode_batch
from tests.support.registry_answers import Schemas
from tests.support.shim_client import Segment, ShimClient, segment_of

ORDER = avro(record(id="int"), {"id": 1})
PROTO = 'syntax = "proto3"; message Order { optional int32 id = 1; }'


@dataclass(frozen=True)
class Form:
    """good: bytes that fit; shown: what the table has of them. bad: bytes that do not; why: the error's code."""

    good: bytes
    shown: Any
    bad: bytes = b"\xff\xfe"
    why: str | None = None


FORMS = {
    "raw": Form(b"plain", None),
    "string": Form("Zürich".encode(), "Zürich", why="invalid_utf8"),
    "json": Form(b'{"id": 1}', {"id": 1, "_additional": None}, b"no json", "undecodable"),
    "avro": Form(ORDER.framed(1), {"id": 1}, b"bare", "not_wire_format"),
    "protobuf": Form(b"\0\0\0\0\x02\0\x08\x01", {"id": 1}, b"bare", "not_wire_format"),
    "auto": Form(ORDER.framed(1), {"id": 1}, b"bare", "not_wire_format"),
}
PAIRS = list(itertools.product(FORMS, FORMS))


@pytest.fixture(scope="module", params=["copied", "derived"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bridge_folder(tmp_path_factory: pytest.TempPathFactory, way: str) -> Path:
    return tmp_path_factory.mktemp(way)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    schemas = Schemas()
    schemas.by_id = {1: dict(ORDER.registered), 2: {"schemaType": "PROTOBUF", "schema": PROTO}}
    with answering() as server:
        server.answers = schemas.answer
        yield server.uri


@pytest.fixture(scope="module")
def bridge(registry: str, bridge_folder: Path, way: str) -> Iterator[Running]:
    budget = {"decode_budget": 0 if way == "derived" else 64}
    rules = [
        {"pattern": f"{value}_{key}(_.*)?", "value_format": value, "key_format": key, **budget} for value, key in PAIRS
    ]
    # A scan may be reading what a derived file takes the place of.
    given = test_settings(bridge_folder, topics=rules, schema_registry={"url": registry}, reclaim_grace="10m")
    with bridge_thread(given) as running:
        yield running


def written(shim: ShimClient, topic: str, pairs: list[tuple[bytes | None, bytes | None]], first: int = 0) -> Segment:
    """A tiered segment of one batch with these values and keys; Kafka is served its bytes."""
    log = LogBuilder(next_offset=first)
    made = [replace(one, key=key) for one, (_, key) in zip(log.records([v for v, _ in pairs]), pairs, strict=True)]
    log.batches.append(encode_batch(made))
    log.next_offset += len(made)
    segment = shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16]))
    assert shim.fetch(segment) == log.data
    return segment


def rows_of(catalog: Catalog, topic: str, count: int) -> list[dict[str, Any]]:
    """The table's rows by offset, once there are so many."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        if catalog.table_exists(("kafka", topic)):
            found[:] = catalog.load_table(("kafka", topic)).scan().to_arrow().to_pylist()
        return len(found) == count

    eventually(there)
    return sorted(found, key=lambda row: int(row["_kafka_offset"]))


def value_in(row: dict[str, Any], form: str) -> Any:
    """What the value's columns show: nothing, the text, or the fields."""
    own = {name: item for name, item in row.items() if not name.startswith(("_kafka_", "_key"))}
    if form in ("raw", "string"):
        assert own.keys() == ({"value"} if form == "string" else set())
        return own.get("value")
    return None if all(item is None for item in own.values()) else own


@pytest.mark.parametrize(("value", "key"), PAIRS)
def test_columns_errors_and_bytes(
    value: str, key: str, shim: ShimClient, catalog: Catalog, bridge_folder: Path
) -> None:
    v, k = FORMS[value], FORMS[key]
    topic = f"{value}_{key}"
    pairs = [(v.good, k.good), (v.good, k.bad), (v.bad, k.good), (None, k.good), (v.good, None), (v.bad, k.bad)]
    segment = written(shim, topic, pairs)
    rows = rows_of(catalog, topic, len(pairs))
    assert [value_in(row, value) for row in rows] == [v.shown, v.shown, None, None, v.shown, None]
    assert ["_key" in row for row in rows] == [key != "raw"] * len(rows)
    assert [row.get("_key") for row in rows] == [k.shown, None, k.shown, k.shown, None, None]
    of_key = k.why and f"key_{k.why}"
    codes = [(row.get("_kafka_error") or "").partition(":")[0] or None for row in rows]
    assert codes == [None, of_key, v.why, None, None, v.why or of_key]
    assert [row["_kafka_key"] for row in rows] == [key for _, key in pairs]
    kept = [None if value == "string" and one == v.good else one for one, _ in pairs]
    assert [row["_kafka_value"] for row in rows] == kept
    assert verify_store(None, bridge_folder, topic).damages == []
    shim.delete(segment)
    assert rows_of(catalog, topic, 0) == []


@pytest.mark.parametrize("other", ["string", "json", "avro"])
def test_auto_leaves_bytes_alone_whatever_is_typed_beside_it(other: str, shim: ShimClient, catalog: Catalog) -> None:
    """Columns for what carries the wire format, bytes for the rest: no errors because the other part is typed."""
    form = FORMS[other]
    written(shim, f"auto_{other}_bare", [(b"bare", form.good)] * 3)
    rows = rows_of(catalog, f"auto_{other}_bare", 3)
    assert [(row["_kafka_value"], row["_kafka_error"], row["_key"]) for row in rows] == [
        (b"bare", None, form.shown)
    ] * 3
    written(shim, f"{other}_auto_bare", [(form.good, b"bare")] * 3)
    rows = rows_of(catalog, f"{other}_auto_bare", 3)
    shown = [(value_in(row, other), row["_kafka_error"], row["_kafka_key"]) for row in rows]
    assert shown == [(form.shown, None, b"bare")] * 3


def test_a_rule_that_changes_keeps_all_rows_and_their_bytes(tmp_path: Path, registry: str) -> None:
    """Bytes, text, a record, bytes and text again; values are text all the time."""
    turns = ["raw", "string", "avro", "raw", "string"]
    rows: list[dict[str, Any]] = []
    for number, form in enumerate(turns):
        rule = {"pattern": "turn", "value_format": "string", "key_format": form}
        settings = test_settings(tmp_path, topics=[rule], schema_registry={"url": registry}, generation=number)
        with (
            bridge_thread(settings) as running,
            ShimClient(running.address) as client,
            closing(open_catalog(embedded_settings(tmp_path))) as catalog,
        ):
            written(client, "turn", [(b"v%d" % number, FORMS[form].good)], number)
            rows = rows_of(catalog, "turn", number + 1)
    assert [row["value"] for row in rows] == [f"v{number}" for number in range(5)]
    assert [row["_kafka_key"] for row in rows] == [FORMS[form].good for form in turns]
    text = "Zürich"
    assert [row["_key"] for row in rows] == [None, text, None, None, text]
    assert [row["_key__v2"] for row in rows] == [None, None, {"id": 1}, None, None]
    assert {row["_kafka_error"] for row in rows} == {None}


@pytest.mark.parametrize("part", ["value_format", "key_format"])
def test_what_stores_no_rows_takes_no_text(part: str, tmp_path: Path) -> None:
    rule = {"pattern": ".*", "mode": "verbatim", part: "string"}
    with pytest.raises(SettingsError, match=f"stores no rows, so it takes no {part}"):
        test_settings(tmp_path, topics=[rule])


def test_text_is_taken_byte_for_byte() -> None:
    given = [b"", b"a\0b", "\U0010ffff é".encode(), b"\xed\xa0\x80", b"\xc0\x80", b"\xf0\x9f", b"plain"]
    made = TextDecoder().decode(pa.array([b"before", *given], pa.binary())[1:])
    shown = [row and row["value"] for row in made.columns.to_pylist()]
    assert shown == ["", "a\0b", "\U0010ffff é", None, None, None, "plain"]
    assert [error is None for error in made.errors.to_pylist()] == [text is not None for text in shown]
    assert made.errors.to_pylist()[3] == "invalid_utf8: the bytes are no UTF-8"
    assert len(TextDecoder().decode(pa.array([], pa.binary())).columns) == 0
