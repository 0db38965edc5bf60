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

from rsm_bridge.config.secrets import revealed
from rsm_bridge.config.settings import Settings, load_settings
from tierberg.cli import app
from tierberg.stack.jars import KAFKA_VERSION, TRINO_VERSION
from tierberg.stack.servers import versitygw
from tierberg.stack.servers.rest_catalog import S3Warehouse
from tierberg.stack.servers.trino import catalog_properties
from tierberg.stack.tiering import Plugin, tiering_properties

ROOT = Path(__file__).resolve().parents[3]
STACK = ROOT / "tierberg" / "stack"
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
        ("user", "root"),
        ("user", "0:1"),
        ("privileged", True),
        ("environment", {"A": 1}),
        ("depends_on", ["bridge"]),
        ("depends_on", {"bridge": {"condition": "ready"}}),
        ("healthcheck", {"test": ["CMD-SHELL", "true"], "interval": "1s", "timeout": "1s", "retries": 1}),
        ("healthcheck", {"test": ["CMD", "true"]}),
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
    mounts = [mount.split(":")[0] for service in services.values() for mount in service["volumes"]]
    assert {mount for mount in mounts if mount[0] != "."} == set(COMPOSE["volumes"])
    for mount in mounts:
        assert mount[0] != "." or mount.startswith("./java-shim/target") or (ROOT / mount).exists(), mount
    assert {other for service in services.values() for other in service.get("depends_on", {})} <= services.keys()


def test_what_is_waited_for_can_be_had_in_that_profile() -> None:
    """A service of a profile waits only for services of its own, of no, or of the profile it is used with."""
    used_with = {"spark": "lake", "trino": "lake"}
    services = COMPOSE["services"]
    for service in services.values():
        (profile,) = service.get("profiles", [None])
        for name, condition in service.get("depends_on", {}).items():
            (theirs,) = services[name].get("profiles", [None])
            assert theirs in (None, profile, used_with.get(profile)) or condition["required"] is False


def test_every_server_says_whether_it_is_healthy() -> None:
    for name, service in COMPOSE["services"].items():
        assert "healthcheck" in service or name == "bucket"


@pytest.mark.parametrize("name", ["embedded", "lake"])
def test_bridge_settings_of_compose_are_settings(name: str) -> None:
    settings = load_settings(STACK / "compose" / f"{name}.yaml")
    assert settings.data_dir == Path("/data")
    assert settings.listen == Settings().listen
    assert (settings.store is None) == (name == "embedded")
    assert COMPOSE["services"]["bridge"]["command"][-1] == "/etc/tierberg/${TIERBERG_CONFIG:-embedded}.yaml"


def test_servers_and_clients_of_the_lake_meet() -> None:
    services = COMPOSE["services"]
    settings = load_settings(STACK / "compose" / "lake.yaml")
    assert settings.store is not None
    store = revealed(settings.store.options)
    catalog = revealed(settings.catalog.properties)
    s3, rest = services["s3"], services["catalog"]["environment"]
    assert f"http://s3{s3['command'][1]}" == store["endpoint"] == catalog["s3.endpoint"] == rest["CATALOG_S3_ENDPOINT"]
    keys = (s3["environment"]["ROOT_ACCESS_KEY"], s3["environment"]["ROOT_SECRET_KEY"])
    for given in (
        (store["access_key_id"], store["secret_access_key"]),
        (catalog["s3.access-key-id"], catalog["s3.secret-access-key"]),
        *((services[name]["environment"]["AWS_ACCESS_KEY_ID"], services[name]["environment"]["AWS_SECRET_ACCESS_KEY"])
          for name in ("catalog", "spark")),
    ):  # fmt: skip
        assert given == keys
    for engine in ("trino/lake.properties", "spark-defaults.conf"):
        text = (STACK / "compose" / engine).read_text(encoding="utf-8")
        assert catalog["uri"] in text
        assert store["endpoint"] in text
    assert s3["image"].endswith(f":{versitygw.VERSION}")


def test_from_outside_the_lake_is_where_the_first_topic_page_says() -> None:
    page = (ROOT / "docs" / "first-topic.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python rest-select\n(.*?)```", page, re.DOTALL)
    ports = {f"127.0.0.1:{port}:{port}" for port in re.findall(r"http://localhost:(\d+)", block)}
    assert ports == {*COMPOSE["services"]["s3"]["ports"], *COMPOSE["services"]["catalog"]["ports"]}
    user = COMPOSE["services"]["s3"]["environment"]
    assert f"`AWS_ACCESS_KEY_ID={user['ROOT_ACCESS_KEY']}`" in page
    assert f"`AWS_SECRET_ACCESS_KEY={user['ROOT_SECRET_KEY']}`" in page
    (region,) = re.findall(r'"s3.region": "(.*?)"', block)
    assert region == COMPOSE["services"]["catalog"]["environment"]["AWS_REGION"]


def test_trino_of_compose_is_told_what_the_local_process_is() -> None:
    text = (STACK / "compose" / "trino" / "lake.properties").read_text(encoding="utf-8")
    given = dict(line.split("=", 1) for line in text.splitlines())
    local = catalog_properties(
        "http://catalog:8181",
        S3Warehouse(uri="", endpoint="http://s3:7070", access_key="stack", secret_key="stack-secret"),
    )
    assert given == local


def test_versions_of_compose_are_those_of_the_local_processes() -> None:
    services = COMPOSE["services"]
    pom = (STACK / "iceberg-rest-pom.xml").read_text(encoding="utf-8")
    (iceberg,) = re.findall(r"<iceberg.version>(.*)</iceberg.version>", pom)
    assert services["catalog"]["image"].endswith(f":{iceberg}")
    spark = (STACK / "spark-pom.xml").read_text(encoding="utf-8")
    (runtime,) = re.findall(r"<artifactId>(iceberg-spark-runtime[^<]*)</artifactId>\s*<version>([^<]*)<", spark)
    s3 = (STACK / "spark-s3-pom.xml").read_text(encoding="utf-8")
    assert f"<version>{runtime[1]}</version>" in s3
    assert ":".join(runtime) in (STACK / "compose" / "spark-defaults.conf").read_text(encoding="utf-8")
    (locked,) = re.findall(r'name = "pyspark"\nversion = "([^"]*)"', (ROOT / "uv.lock").read_text(encoding="utf-8"))
    assert services["spark"]["image"].startswith(f"apache/spark:{locked}-")
    trino = (STACK / "trino-pom.xml").read_text(encoding="utf-8")
    assert f"<version>{TRINO_VERSION}</version>\n      <type>tar.gz</type>" in trino
    assert services["trino"]["image"] == f"trinodb/trino:{TRINO_VERSION}"


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


@pytest.mark.parametrize("name", ["bridge", "bucket"])
def test_our_own_services_are_confined(name: str) -> None:
    bridge = COMPOSE["services"][name]
    assert bridge["read_only"] is True
    assert bridge["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in bridge["security_opt"]
    assert bridge["tmpfs"] == ["/tmp"]


def test_the_bridge_listens_where_the_broker_dials() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[-1])
    target = COMPOSE["services"]["kafka"]["environment"]["KAFKA_RSM_CONFIG_BRIDGE_TARGET"]
    assert command[command.index("--listen") + 1] == target == Settings().listen


def test_root_is_only_who_could_not_write_its_volume_else() -> None:
    """The image of the catalog has a user and no folder for its database; those of the others have both."""
    root = {name for name, service in COMPOSE["services"].items() if service.get("user") == "0:0"}
    assert root == {"catalog"}
    (volume,) = COMPOSE["services"]["catalog"]["volumes"]
    database = COMPOSE["services"]["catalog"]["environment"]["CATALOG_URI"].removeprefix("jdbc:sqlite:")
    assert database.startswith(f"{volume.split(':')[1]}/")


def test_images_are_pinned_and_the_last_user_has_no_rights() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, re.MULTILINE))
    images = [image for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) if image not in stages]
    assert len(set(images)) == 1, "what one stage builds runs in another"
    assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+", images[0])
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == ["10001:10001"] * 2


def test_the_image_of_projections_has_spark_java_and_its_own_command() -> None:
    stage = DOCKERFILE.split(" AS repartition\n")[1].split("\nFROM ")[0]
    assert "openjdk-17-jre-headless" in stage
    assert "COPY --from=build-repartition /opt/tierberg /opt/tierberg\n" in stage
    assert (
        "RUN uv sync --locked --no-dev --no-editable --extra typed --extra postgres --extra aws --extra repartition\n"
        in DOCKERFILE
    )
    (command,) = re.findall(r"^CMD (.*)$", stage, re.MULTILINE)
    tierberg, *arguments = json.loads(command)
    assert tierberg == "tierberg"
    with pytest.raises(SystemExit) as ended:
        app([*arguments, "--help"])
    assert ended.value.code == 0


def test_the_image_is_built_with_the_lock_and_the_same_uv() -> None:
    assert DOCKERFILE.count("--locked") == DOCKERFILE.count("uv sync") == 3
    uv = re.findall(r"uv==([\d.]+)", DOCKERFILE)
    assert uv == re.findall(r"uv==([\d.]+)", (ROOT / "Makefile").read_text(encoding="utf-8"))


def test_every_stage_has_what_typed_topics_and_catalogs_need() -> None:
    """`uv sync` removes what it is not told of; kernels of typed values are compiled from their libraries."""
    for command in re.findall(r"uv sync .*", DOCKERFILE):
        assert "--extra typed --extra postgres" in command


def test_every_package_is_copied_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {package} {package}\n" in DOCKERFILE
        assert f"!{package}\n" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_kernels_are_built_in_and_copied_where_they_can_be_written() -> None:
    whole_seconds = DOCKERFILE.index("""'touch -d "@$(stat -c %Y "$1")" "$1"'""")
    assert whole_seconds < DOCKERFILE.index("RUN NUMBA_CACHE_DIR"), (
        "layers of an image keep no fractions; numba compares"
    )
    assert re.search(r"RUN NUMBA_CACHE_DIR=/opt/tierberg/numba .*warm", DOCKERFILE)
    assert "cp -R /opt/tierberg/numba /tmp/" in DOCKERFILE
    assert "NUMBA_CACHE_DIR=/tmp/numba" in DOCKERFILE
