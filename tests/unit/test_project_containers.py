"""Dockerfile and docker-compose.yml, read but not run: no container engine is needed to develop or test."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rsm_bridge.settings import Settings
from stack.jars import KAFKA_VERSION
from stack.tiering import Plugin, tiering_properties

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests/support/compose.schema.json").read_text(encoding="utf-8"))
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_compose_fits_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(COMPOSE, SCHEMA)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("image", "apache/kafka:latest"),
        ("image", "apache/kafka"),
        ("ports", ["9092:9092"]),
        ("user", "0:0"),
        ("privileged", True),
        ("environment", {"A": 1}),
    ],
)
def test_the_schema_refuses(key: str, value: Any) -> None:
    changed = copy.deepcopy(COMPOSE)
    changed["services"]["kafka"][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, SCHEMA)


def test_names_inside_compose_meet() -> None:
    services = COMPOSE["services"]
    assert services["bridge"]["network_mode"] == "service:kafka"
    named = {mount.split(":")[0] for service in services.values() for mount in service["volumes"] if mount[0] != "."}
    assert named == set(COMPOSE["volumes"])


def test_the_broker_is_the_tested_one_with_the_settings_it_needs() -> None:
    kafka = COMPOSE["services"]["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    properties = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in kafka["environment"].items()
    }
    plugin = Plugin(
        "io.tierberg.rsm.TierbergRemoteStorageManager", "/opt/tierberg/*", {"bridge.target": "", "cluster.name": ""}
    )
    needed = tiering_properties(plugin)
    for key in ("remote.log.storage.system.enable", "remote.log.storage.manager.class.name"):
        assert properties[key] == needed[key]
    assert {key for key in needed if key.startswith("rsm.config.")} <= properties.keys()
    assert properties["remote.log.metadata.manager.listener.name"] in properties["listeners"]


def test_the_bridge_is_confined() -> None:
    bridge = COMPOSE["services"]["bridge"]
    assert bridge["read_only"] is True
    assert bridge["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in bridge["security_opt"]
    assert bridge["tmpfs"] == ["/tmp"]


def test_the_bridge_listens_where_the_broker_dials() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[-1])
    target = COMPOSE["services"]["kafka"]["environment"]["KAFKA_RSM_CONFIG_BRIDGE_TARGET"]
    assert command[command.index("--listen") + 1] == target == Settings().listen


def test_images_are_pinned_and_the_last_user_has_no_rights() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert images
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+", image) for image in images)
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)[-1] == "10001:10001"


def test_the_image_is_built_with_the_lock_and_the_same_uv() -> None:
    assert DOCKERFILE.count("--locked") == 2
    uv = re.findall(r"uv==([\d.]+)", DOCKERFILE)
    assert uv == re.findall(r"uv==([\d.]+)", (ROOT / "Makefile").read_text(encoding="utf-8"))


def test_every_package_is_copied_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {package} {package}\n" in DOCKERFILE
        assert f"!{package}\n" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_kernels_are_built_in_and_copied_where_they_can_be_written() -> None:
    assert re.search(r"RUN NUMBA_CACHE_DIR=/opt/tierberg/numba .*warm", DOCKERFILE)
    assert "cp -R /opt/tierberg/numba /tmp/" in DOCKERFILE
    assert "NUMBA_CACHE_DIR=/tmp/numba" in DOCKERFILE
