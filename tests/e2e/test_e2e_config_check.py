"""`tierberg config check` beside a real broker and a real schema registry."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.e2e.e2e_support import Pair
from tierberg.stack.servers.registry import RegistryServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TIERED = {"remote.storage.enable": "true"}


def check(config: Path, *arguments: str) -> tuple[int, str]:
    tierberg = str(Path(sys.executable).with_name("tierberg"))
    argv = [tierberg, "config", "check", "--config", str(config), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, done.stdout


def by_name(text: str) -> dict[str, dict[str, Any]]:
    return {topic["topic"]: topic for topic in json.loads(text)["topics"]}


def test_rules_against_live_topics(pair: Pair, registry: RegistryServer, tmp_path: Path) -> None:
    for name, settings in {
        "check-orders": TIERED,
        "check-events": TIERED,
        "check-auto": TIERED,
        "check-local": {},
        "check-compacted": {"cleanup.policy": "compact"},
    }.items():
        pair.admin.create_topic(name, config=settings)
    with closing(SchemaRegistryClient({"url": registry.url, "timeout": 30})) as client:
        order = client.register_schema(
            "check-orders-value", Schema('{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}', "AVRO")
        )
        auto = client.register_schema(
            "check-auto-value", Schema('{"type":"object","properties":{"id":{"type":"integer"}}}', "JSON")
        )
        config = tmp_path / "tierberg.yaml"
        rules: list[dict[str, Any]] = [
            {"pattern": "check-orders", "value_format": "avro", "value_schema": {"from": "subject"}},
            {"pattern": "check-events", "value_format": "protobuf", "value_schema": {"from": "subject"}},
            {"pattern": "check-nothing-has-this-name"},
        ]
        document: dict[str, Any] = {
            "kafka": {"bootstrap_servers": pair.broker.bootstrap},
            "schema_registry": {"url": registry.url, "request_timeout": "10s"},
            "topics": rules,
        }
        config.write_text(yaml.safe_dump(document))

        code, out = check(config, "--json")
        found = by_name(out)
        assert code == 1
        assert found["check-orders"]["value"]["schema"] == {"id": order, "kind": "avro"}
        assert (found["check-orders"]["tiered"], found["check-orders"]["rule"]) == (True, 0)
        (missing,) = found["check-events"]["remarks"]
        assert missing["level"] == "error"
        assert "subject check-events-value" in missing["text"]
        assert (found["check-auto"]["rule"], found["check-auto"]["value"]["format"]) == (None, "auto")
        assert found["check-auto"]["value"]["schema"] == {"id": auto, "kind": "json"}
        assert found["check-local"]["why_not"] == "remote_storage_off"
        assert found["check-compacted"]["why_not"] == "compacted"
        assert not any(name.startswith("__") for name in found)
        (idle,) = json.loads(out)["remarks"]
        assert "topics.2: 'check-nothing-has-this-name' matches no topic" in idle["text"]

        # The advice is followed.
        message = 'syntax = "proto3";\nmessage Event {\n  int64 id = 1;\n}\n'
        number = client.register_schema("check-events-value", Schema(message, "PROTOBUF"))
        code, out = check(config, "check-events", "check-local")
        assert code == 0
        assert f"subject check-events-value: protobuf, id {number}" in out
        assert "remote.storage.enable is false on the topic" in out
