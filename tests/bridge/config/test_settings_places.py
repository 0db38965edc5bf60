"""Settings that say where things are, by where a running bridge puts or finds them."""

from __future__ import annotations

import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from pyspark.sql.types import StructType

from iceberg_catalog.connect.open import open_catalog
from repartition.run.table import table_properties
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.errors import SettingsError
from rsm_bridge.status.check.command import CheckOptions, check_config
from rsm_bridge.storage.backend import catalog_properties
from rsm_bridge.values.registry.registry import SchemaRegistry
from tests.support.answering_server import answering
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.evolution_scenarios import avro, record
from tests.support.kafka_log import LogBuilder, encode_batch
from tests.support.registry_answers import Schemas
from tests.support.shim_client import ShimClient, segment_of

ORDER = avro(record(id="int"), {"id": 1})
PROTO = 'syntax = "proto3"; package a; message First { string x = 1; } message Second { optional int32 id = 1; }'


def test_a_catalog_by_name_namespace_properties_and_warehouse(tmp_path: Path) -> None:
    catalog = {
        "name": "lake",
        "namespace": "history",
        "warehouse": f"file://{tmp_path / 'there'}",
        "properties": {"type": "sql", "uri": f"sqlite:///{tmp_path / 'lake.db'}"},
    }
    with bridge_thread(test_settings(tmp_path / "data", catalog=catalog)) as bridge, ShimClient(bridge.address) as shim:
        shim.copied(segment_of(LogBuilder().fill(1), topic="t"))

        def tables() -> list[Any]:
            if not (tmp_path / "lake.db").exists():
                return []
            with closing(sqlite3.connect(tmp_path / "lake.db")) as database:
                known = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchall()
                found = "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables"
                return database.execute(found).fetchall() if known else []

        eventually(lambda: len(tables()) == 1)
        ((name, namespace, table, location),) = tables()
    assert (name, namespace, table) == ("lake", "history", "t")
    assert location.startswith(f"file://{tmp_path / 'there'}/")
    assert not (tmp_path / "data" / "catalog.db").exists()


@pytest.mark.parametrize("given", [{"warehouse": "file:///x"}, {"name": "lake"}])
def test_what_the_embedded_catalog_would_not_look_at_is_refused(given: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"catalog: .* needs catalog\.properties"):
        test_settings(tmp_path, catalog=given)


@pytest.fixture
def registry() -> Iterator[str]:
    schemas = Schemas()
    schemas.add(1, "orders-of-subject", dict(ORDER.registered))
    schemas.add(2, "keys-of-keysub", dict(ORDER.registered))
    with answering() as server:
        server.answers = schemas.answer
        yield server.uri


def test_where_schemas_come_from(registry: str, tmp_path: Path) -> None:
    """From a file, a subject of a name of its own, a text with a message that is not the first; for keys too."""
    (tmp_path / "order.avsc").write_text(str(ORDER.registered["schema"]), encoding="utf-8")
    subject = {"from": "subject", "subject": "orders-of-{topic}"}
    file = {"from": "inline", "file": str(tmp_path / "order.avsc")}
    message = {"from": "inline", "text": PROTO, "message": "a.Second"}
    bare, proto = ORDER.payload, b"\x08\x01"
    cases = {
        "subject": ({"value_format": "avro", "value_schema": subject}, bare, b"k"),
        "file": ({"value_format": "avro", "value_schema": file}, bare, b"k"),
        "message": ({"value_format": "protobuf", "value_schema": message}, proto, b"k"),
        "keyed": ({"key_format": "avro", "key_schema": file}, b"v", bare),
        "keymsg": ({"key_format": "protobuf", "key_schema": message}, b"v", proto),
        "keysub": ({"key_format": "avro", "key_schema": {**subject, "subject": "keys-of-{topic}"}}, b"v", bare),
    }
    rules = [{"pattern": topic, **rule} for topic, (rule, _, _) in cases.items()]
    settings = test_settings(tmp_path / "data", topics=rules, schema_registry={"url": registry})
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        for topic, (_, value, key) in cases.items():
            log = LogBuilder()
            log.batches.append(encode_batch([replace(one, key=key) for one in log.records([value])]))
            log.next_offset = 1
            shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")))
        catalog = bridge.publisher.open_catalog()

        def row(topic: str) -> dict[str, Any]:
            eventually(lambda: catalog.table_exists(("kafka", topic)))
            eventually(lambda: catalog.load_table(("kafka", topic)).current_snapshot() is not None)
            (found,) = catalog.load_table(("kafka", topic)).scan().to_arrow().to_pylist()
            assert found["_kafka_error"] is None
            return dict(found)

        assert [row(topic)["id"] for topic in ("subject", "file", "message")] == [1, 1, 1]
        assert [row(topic)["_key"] for topic in ("keyed", "keymsg", "keysub")] == [{"id": 1}] * 3


def test_a_verbatim_topic_has_bytes_and_no_table(tmp_path: Path) -> None:
    rules = [{"pattern": "kept", "mode": "verbatim"}, {"pattern": "rows", "mode": "table"}]
    with bridge_thread(test_settings(tmp_path, topics=rules)) as bridge, ShimClient(bridge.address) as shim:
        for topic in ("kept", "rows"):
            segment = shim.copied(segment_of(LogBuilder().fill(1), topic=topic, topic_id=topic.encode() * 4))
            assert shim.fetch(segment) == segment.data
        catalog = bridge.publisher.open_catalog()
        eventually(lambda: catalog.table_exists(("kafka", "rows")))
        assert not catalog.table_exists(("kafka", "kept"))
        stored = {
            topic: [one.key for one in bridge.store.list_after(f"data/{(topic.encode() * 4).hex()}/")]
            for topic in ("kept", "rows")
        }
    assert not stored["kept"]
    assert stored["rows"]


@pytest.mark.parametrize(
    ("graces", "deleted", "left"),
    [
        ({"reclaim_grace": "50ms", "mass_delete_grace": "50ms"}, 3, 0),
        ({"reclaim_grace": "50ms", "mass_delete_grace": "1h"}, 3, 3),
        ({"reclaim_grace": "50ms", "mass_delete_grace": "1h"}, 1, 2),
        ({"reclaim_grace": "1h", "mass_delete_grace": "1h"}, 1, 3),
    ],
    ids=str,
)
def test_how_long_what_was_deleted_stays(graces: dict[str, str], deleted: int, left: int, tmp_path: Path) -> None:
    """Of three segments some are deleted: a third of the table, or all of it."""
    topic_id = b"stays".ljust(16, b".")
    with bridge_thread(test_settings(tmp_path, **graces)) as bridge, ShimClient(bridge.address) as shim:
        log, copied = LogBuilder(), []
        for _ in range(3):
            log = LogBuilder(next_offset=log.next_offset).fill(1)
            copied.append(shim.copied(segment_of(log, topic="stays", topic_id=topic_id)))
        catalog = bridge.publisher.open_catalog()

        def rows() -> int:
            known = catalog.table_exists(("kafka", "stays"))
            return catalog.load_table(("kafka", "stays")).scan().to_arrow().num_rows if known else -1

        def objects() -> int:
            return len(list(bridge.store.list_after(f"data/{topic_id.hex()}/")))

        eventually(lambda: rows() == 30)
        for one in copied[:deleted]:
            shim.delete(one)
        eventually(lambda: rows() == 30 - 10 * deleted)
        if left < 3:
            eventually(lambda: objects() == left)
        else:
            time.sleep(1.0)
        assert objects() == left


@pytest.mark.parametrize(("setting", "seconds"), [("connect_timeout", 4.0), ("read_timeout", 0.3)])
def test_how_long_a_catalog_is_waited_for(setting: str, seconds: float, tmp_path: Path) -> None:
    """One accepts no connection, the other says nothing: the call ends by the setting, not by its default."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        # A queue that is full lets nobody in any more.
        filling = [] if setting == "read_timeout" else [socket.socket() for _ in range(4)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(address)
        times = {"connect_timeout": "60s", "read_timeout": "60s", setting: f"{int(1000 * seconds)}ms"}
        properties = {"type": "rest", "uri": f"http://127.0.0.1:{address[1]}"}
        settings = test_settings(tmp_path, catalog={"properties": properties, **times})
        started = time.monotonic()
        with pytest.raises(Exception, match=r"(?i)tim(e|ed) ?out"):
            open_catalog(catalog_properties(settings))
        assert seconds <= time.monotonic() - started < 20  # the defaults are 2 s and 30 s
        for one in filling:
            one.close()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"schema": "\\"long\\""}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def test_the_password_of_the_key_for_the_registry(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.settings()
    certificate, key = authority.issued("client")
    (tmp_path / "client.pem").write_bytes(certificate)
    locked = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter2"),
    )
    (tmp_path / "client.key").write_bytes(locked)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own["certificate_file"], own["key_file"])
    context.load_verify_locations(own["client_ca_file"])
    context.verify_mode = ssl.CERT_REQUIRED
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        tls = {
            "ca_file": own["client_ca_file"],
            "certificate_file": str(tmp_path / "client.pem"),
            "key_file": str(tmp_path / "client.key"),
            "key_password": "hunter2",
        }
        url = f"https://127.0.0.1:{server.server_address[1]}"
        opened = SchemaRegistry(
            SchemaRegistrySettings.model_validate({"url": url, "request_timeout": "10s", "tls": tls})
        )
        try:
            assert opened.by_id(1).text == '"long"'
        finally:
            opened.close()
            server.shutdown()
            thread.join(10)


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers nothing: its address, and what each client said first."""
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        ended = Event()

        def take() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(5)
                        said.append(connection.recv(4096))

        thread = Thread(target=take)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", said
        finally:
            ended.set()
            thread.join(30)


def test_the_named_broker_is_asked_by_a_client_with_the_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what arrives there: Kafka's request has the client's name."""
    monkeypatch.setattr("rsm_bridge.status.check.command.STATUS_KAFKA_SECONDS", 3.0)
    config = tmp_path / "tierberg.yaml"
    with listening() as (address, said):
        config.write_text(f"kafka: {{bootstrap_servers: '{address}', properties: {{client.id: seen-by-brokers}}}}\n")
        _, wrong = check_config(CheckOptions(config=config, topics=("orders",)))
        assert wrong
        eventually(lambda: any(b"seen-by-brokers" in first for first in said))


@pytest.mark.parametrize("accepted", [True, False])
def test_beyond_loopback_is_listened_only_where_that_is_accepted(accepted: bool, tmp_path: Path) -> None:
    """127.0.0.2 counts as beyond, and no other machine can reach it."""
    config = tmp_path / "tierberg.yaml"
    config.write_text(f"{{listen: '127.0.0.2:0', data_dir: '{tmp_path}/data', insecure: {str(accepted).lower()}}}\n")
    with BridgeProcess("--config", str(config), expect_ready=accepted) as bridge:
        if accepted:
            with ShimClient(bridge.address) as shim:
                segment = shim.copied(segment_of(LogBuilder().fill(1)))
                assert shim.fetch(segment) == segment.data
        else:
            assert bridge.process.wait(60) != 0
            assert "127.0.0.2:0 can be reached from other machines" in bridge.errors()


def test_the_table_of_a_projection_is_made_as_its_rule_says() -> None:
    """What engines that write to it go by."""
    rule = {"table": "t", "mode": "upsert", "key": ["id"], "target_file_mib": 7, "format_version": 3}
    found = table_properties(ProjectionRule.model_validate({**rule, "row_writes": "copy-on-write"}), StructType())
    assert found["write.target-file-size-bytes"] == str(7 * 1024 * 1024)
    assert found["format-version"] == "3"
    assert found["write.merge.mode"] == "copy-on-write"
