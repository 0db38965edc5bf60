"""The schema registry of the stack, over Confluent's API: every kind of schema goes in and comes out; what we read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError

from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.values.registry.errors import RegistryUnavailableError, SchemaUnknownError
from rsm_bridge.values.registry.registry import SchemaRegistry
from tierberg.stack.ports import LOOPBACK
from tierberg.stack.servers.registry import RegistryServer

# The first use fetches the server.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}}
MONEY = 'syntax = "proto3";\npackage shop;\nmessage Money {\n  int64 units = 1;\n}\n'
ORDER = 'syntax = "proto3";\npackage shop;\nimport "shop/money.proto";\nmessage Order {\n  Money price = 1;\n}\n'


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    opened = SchemaRegistryClient({"url": registry.url, "timeout": 30})
    yield opened
    opened.close()


# The registry gives Avro back without blanks.
@pytest.mark.parametrize(
    ("kind", "text"),
    [("AVRO", json.dumps(AVRO, separators=(",", ":"))), ("JSON", json.dumps(JSON)), ("PROTOBUF", MONEY)],
)
def test_a_schema_is_read_back_by_id_and_as_the_latest(client: SchemaRegistryClient, kind: str, text: str) -> None:
    subject = f"stack-{kind.lower()}-value"
    number = client.register_schema(subject, Schema(text, kind))
    client.clear_caches()
    by_id, latest = client.get_schema(number), client.get_latest_version(subject)
    assert (by_id.schema_type, by_id.schema_str) == (kind, text)
    assert (latest.schema_id, latest.schema.schema_str) == (number, text)


def test_a_protobuf_schema_names_what_it_imports(client: SchemaRegistryClient) -> None:
    client.register_schema("stack-money", Schema(MONEY, "PROTOBUF"))
    reference = SchemaReference("shop/money.proto", "stack-money", 1)
    number = client.register_schema("stack-order-value", Schema(ORDER, "PROTOBUF", [reference]))
    client.clear_caches()
    found = client.get_schema(number)
    assert [(each.name, each.subject, each.version) for each in found.references or []] == [
        ("shop/money.proto", "stack-money", 1)
    ]
    assert client.get_version("stack-money", 1).schema.schema_str == MONEY


def test_what_is_unknown_has_confluents_codes(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_schema(987_654)
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40403)
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_latest_version("stack-nobody")
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40401)


def test_it_listens_on_loopback_only(registry: RegistryServer) -> None:
    sockets = psutil.Process(registry.process.pid).net_connections("tcp")
    hosts = {each.laddr.ip.removeprefix("::ffff:") for each in sockets if each.status == psutil.CONN_LISTEN}
    assert hosts == {LOOPBACK}


@pytest.fixture
def ours(registry: RegistryServer) -> Iterator[SchemaRegistry]:
    settings = {"url": registry.url, "request_timeout": "10s"}
    opened = SchemaRegistry(SchemaRegistrySettings.model_validate(settings))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("kind", "text"), [("avro", json.dumps(AVRO)), ("json", json.dumps(JSON)), ("protobuf", MONEY)]
)
def test_the_bridge_reads_every_kind(client: SchemaRegistryClient, ours: SchemaRegistry, kind: str, text: str) -> None:
    number = client.register_schema(f"bridge-{kind}-value", Schema(text, kind.upper()))
    found = ours.by_id(number)
    assert (found.id, found.kind, dict(found.references)) == (number, kind, {})
    assert found.text.split() == text.split() or json.loads(found.text) == json.loads(text)
    assert ours.latest(f"bridge-{kind}-value") == found


def test_the_bridge_reads_imports_of_imports(client: SchemaRegistryClient, ours: SchemaRegistry) -> None:
    basket = 'syntax = "proto3";\npackage shop;\nimport "shop/order.proto";\nmessage Basket {\n  Order one = 1;\n}\n'
    client.register_schema("bridge-money", Schema(MONEY, "PROTOBUF"))
    money = SchemaReference("shop/money.proto", "bridge-money", 1)
    client.register_schema("bridge-order", Schema(ORDER, "PROTOBUF", [money]))
    order = SchemaReference("shop/order.proto", "bridge-order", 1)
    number = client.register_schema("bridge-basket-value", Schema(basket, "PROTOBUF", [order]))
    found = ours.by_id(number)
    assert (found.kind, found.text) == ("protobuf", basket)
    assert list(found.references.items()) == [("shop/money.proto", MONEY), ("shop/order.proto", ORDER)]


def test_a_deleted_subject_is_unknown_and_its_ids_stay(client: SchemaRegistryClient, ours: SchemaRegistry) -> None:
    number = client.register_schema("bridge-deleted", Schema('{"type":"enum","name":"Gone","symbols":["A"]}', "AVRO"))
    client.delete_subject("bridge-deleted")
    with pytest.raises(SchemaUnknownError, match="subject bridge-deleted"):
        ours.latest("bridge-deleted")
    assert ours.by_id(number).kind == "avro"
    with pytest.raises(SchemaUnknownError, match="schema id 987654"):
        ours.by_id(987_654)


def test_a_frozen_registry_is_left_alone_and_asked_again(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("bridge-frozen", Schema('{"type":"fixed","name":"Ice","size":7}', "AVRO"))
    ours = SchemaRegistry(SchemaRegistrySettings(url=registry.url))
    registry.process.freeze()
    try:
        began = time.monotonic()
        with pytest.raises(RegistryUnavailableError):
            ours.by_id(number)
        assert time.monotonic() - began < 4
    finally:
        registry.process.resume()
    try:
        time.sleep(2.5)
        assert ours.by_id(number).kind == "avro"
    finally:
        ours.close()
