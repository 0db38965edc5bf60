"""Catalogs as Spark is told of them: by the names of Iceberg's Java side, with what the environment says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from repartition.errors import RepartitionError
from repartition.spark.catalog import spark_catalog
from repartition.spark.targets import open_targets
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.secrets import revealed
from rsm_bridge.storage.backend import Backend, open_backend

PREFIX = "spark.sql.catalog.lake."
REST = {"type": "rest", "uri": "https://catalog"}
OAUTH2 = {"client_id": "tierberg", "client_secret": "hunter2:x", "token_url": "https://id/token"}
S3 = "org.apache.iceberg.aws.s3.S3FileIO"
AZURE = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
GOOGLE = "org.apache.iceberg.gcp.gcs.GCSFileIO"


def told(**properties: Any) -> dict[str, str]:
    """What Spark is told below the catalog's name."""
    found = spark_catalog("lake", {**REST, **properties})
    return {key.removeprefix(PREFIX): value for key, value in found.items()}


@pytest.mark.parametrize(("given", "scope"), [({"scope": "PRINCIPAL_ROLE:ALL"}, "PRINCIPAL_ROLE:ALL"), ({}, "")])
def test_oauth2(given: dict[str, Any], scope: str) -> None:
    found = told(auth={"type": "oauth2", "oauth2": {**OAUTH2, "refresh_margin": 30, **given}})
    assert found["rest.auth.type"] == "oauth2"
    assert found["credential"] == "tierberg:hunter2:x"
    assert found["oauth2-server-uri"] == "https://id/token"
    assert found["scope"] == scope
    assert found["token-exchange-enabled"] == "false"
    assert "auth" not in found


def test_a_name_and_a_password() -> None:
    found = told(auth={"type": "basic", "basic": {"username": "me", "password": "hunter2"}})
    assert found["rest.auth.type"] == "basic"
    assert (found["rest.auth.basic.username"], found["rest.auth.basic.password"]) == ("me", "hunter2")


def test_no_login() -> None:
    assert told(auth={"type": "noop"})["rest.auth.type"] == "none"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"auth": {"type": "entra", "entra": {}}}, "auth.type entra"),
        ({"auth": {"type": "custom", "impl": "a.B", "custom": {"password": "hunter2"}}}, "auth.type custom"),
        ({"auth": {}}, "auth.type None"),
        ({"auth": "oauth2"}, "auth.type None"),
        ({"ssl": {"cabundle": "/ca.pem"}}, "ssl"),
    ],
)
def test_what_java_has_no_counterpart_of(properties: dict[str, Any], said: str) -> None:
    with pytest.raises(RepartitionError, match=rf"`{said}`.*repartition\.spark") as raised:
        told(**properties)
    assert raised.value.kind == "bad_rule"
    assert "hunter2" not in str(raised.value)


def test_an_account_of_azure_and_its_key() -> None:
    found = told(**{"adls.account-name": "store", "adls.account-key": "hunter2"})
    assert found["adls.auth.shared-key.account.name"] == "store"
    assert found["adls.auth.shared-key.account.key"] == "hunter2"
    assert found["io-impl"] == AZURE
    assert not {"adls.account-name", "adls.account-key"} & found.keys()


@pytest.mark.parametrize(
    ("given", "host"),
    [({}, "store.dfs.core.windows.net"), ({"adls.dfs-storage-authority": ".dfs.test"}, "store.dfs.test")],
)
def test_a_signature_of_azure(given: dict[str, str], host: str) -> None:
    found = told(**{"adls.account-name": "store", "adls.sas-token": "sig=hunter2", **given})
    assert found[f"adls.sas-token.{host}"] == "sig=hunter2"
    assert "adls.sas-token" not in found
    assert "adls.auth.shared-key.account.name" not in found, "Java refuses one without a key"


def test_a_client_of_azure_is_not_handed_on() -> None:
    found = told(**{"adls.account-name": "a", "adls.client-id": "c", "adls.client-secret": "s", "adls.tenant-id": "t"})
    assert [key for key in found if key.startswith("adls.")] == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"s3.region": "eu-1"}, None),
        ({"s3.endpoint": "http://s3"}, "true"),
        ({"s3.endpoint": "http://s3", "s3.force-virtual-addressing": "false"}, "true"),
        ({"s3.endpoint": "http://s3", "s3.force-virtual-addressing": "True"}, "false"),
        ({"s3.endpoint": "http://s3", "s3.path-style-access": "false"}, "false"),
    ],
)
def test_where_the_bucket_is_named(given: dict[str, str], expected: str | None) -> None:
    found = told(**given)
    assert found.get("s3.path-style-access") == expected
    assert "s3.force-virtual-addressing" not in found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"warehouse": "lake"}, None),
        ({"warehouse": "file:///w"}, None),
        ({"warehouse": "s3://b/w"}, S3),
        ({"warehouse": "abfss://c@a.dfs.core.windows.net/w"}, AZURE),
        ({"warehouse": "gs://b/w"}, GOOGLE),
        ({"gcs.oauth2.token": "t"}, GOOGLE),
        ({"s3.region": "eu-1", "io-impl": "mine"}, "mine"),
    ],
)
def test_how_files_are_read(given: dict[str, str], expected: str | None) -> None:
    assert told(**given).get("io-impl") == expected


def opened(tmp_path: Path, spark: dict[str, str], **own: Any) -> Backend:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w", **own}
    mart = {"type": "sql", "uri": f"sqlite:///{tmp_path}/mart.db", "warehouse": f"file://{tmp_path}/m"}
    projections = [{"table": "there", "catalog": {"name": "mart", "properties": mart}}]
    settings = {
        "data_dir": str(tmp_path),
        "catalog": {"name": "lake", "properties": properties},
        "topics": [{"pattern": "orders", "copies": projections}],
        "repartition": {"spark": spark},
    }
    config = tmp_path / "tierberg.yaml"
    config.write_text(yaml.safe_dump(settings))
    return open_backend(config, None)


def conf_of(backend: Backend) -> dict[str, str]:
    targets, conf = open_targets(backend, backend.settings.rule("orders").copies)
    for target in targets.values():
        target.catalog.close()
    return conf


def test_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ACCESS_KEY_ID", "overruled")
    monkeypatch.setenv("PYICEBERG_CATALOG__MART__S3__REGION", "eu-1")
    conf = conf_of(opened(tmp_path, {}, **{"s3.access-key-id": "someone"}))
    assert conf[f"{PREFIX}s3.secret-access-key"] == "hunter2"
    assert conf[f"{PREFIX}s3.access-key-id"] == "someone"
    assert conf["spark.sql.catalog.mart.client.region"] == "eu-1"


def test_a_catalog_that_is_told_by_hand(tmp_path: Path) -> None:
    with pytest.raises(RepartitionError, match="ssl"):
        conf_of(opened(tmp_path, {}, ssl={"cabundle": "/ca.pem"}))
    conf = conf_of(opened(tmp_path, {"spark.sql.catalog.lake": "a.Catalog"}, ssl={"cabundle": "/ca.pem"}))
    assert not [key for key in conf if key.startswith(PREFIX)]
    assert conf["spark.sql.catalog.mart.type"] == "jdbc"


def test_a_projections_catalog_has_a_login_too(tmp_path: Path) -> None:
    login = {"type": "oauth2", "oauth2": {**OAUTH2, "refresh_margin": 30}}
    rule = ProjectionRule.model_validate(
        {"table": "t", "catalog": {"name": "mart", "properties": {**REST, "auth": login}}}
    )
    assert rule.catalog is not None
    assert "hunter2" not in repr(rule)
    assert revealed(rule.catalog.properties)["auth"] == login


def test_a_projection_s_catalog_is_made_where_its_rule_says(tmp_path: Path) -> None:
    catalog = {"name": "mart", "properties": {"type": "sql", "uri": f"sqlite:///{tmp_path / 'mart.db'}"}}
    config = tmp_path / "tierberg.yaml"
    rule = {"pattern": "orders", "value_format": "json", "copies": [{"table": "t", "catalog": catalog}]}
    config.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), "topics": [rule]}))
    backend = open_backend(config, None)
    targets, conf = open_targets(backend, backend.settings.rule("orders").copies)
    try:
        targets["mart"].catalog.create_namespace("sales")
        with closing(sqlite3.connect(tmp_path / "mart.db")) as database:
            found = database.execute("SELECT catalog_name, namespace FROM iceberg_namespace_properties").fetchall()
        assert set(found) == {("mart", "sales")}
        assert str(tmp_path / "mart.db") in conf["spark.sql.catalog.mart.uri"]
    finally:
        for target in targets.values():
            target.catalog.close()
