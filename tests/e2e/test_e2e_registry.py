"""The schema registry of the stack: every kind of schema goes in and comes out over Confluent's API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError

from stack.ports import LOOPBACK
from stack.registry import RegistryServer

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
