"""Errors of jobs quote no credentials: neither where they are printed, nor in what `tierberg status` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_catalog.connect import redaction
from iceberg_catalog.connect.redaction import HIDDEN, hide
from iceberg_catalog.tables.names import Owner
from repartition.advise.advise import first_line
from repartition.errors import RepartitionError
from repartition.jobs.events import Failed, ProjectionName, lines
from repartition.run.run import ProjectionJob
from rsm_bridge.config.secrets import settings_secrets
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.backend import Backend, open_backend
from rsm_bridge.storage.projections.hold import declared_projections
from rsm_bridge.storage.projections.progress import read_one

OWNER = Owner("test", "orders", b"t" * 16)
PROJECTIONS, SPARKS, STORES, OWNS = "projections-hunter2", "sparks-hunter2", "stores-hunter2", "owns-hunter2"
SECRETS = (PROJECTIONS, SPARKS, STORES, OWNS)
SAID = f"refused {PROJECTIONS}, {SPARKS}, {STORES}, {OWNS}"
BLANK = f"refused {HIDDEN}, {HIDDEN}, {HIDDEN}, {HIDDEN}"


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setattr(redaction, "_settled", frozenset())
    catalog = {"name": "mart", "properties": {"type": "rest", "uri": "http://c", "credential": f"id:{PROJECTIONS}"}}
    own = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    config = tmp_path / "tierberg.json"
    settings = {
        "data_dir": str(tmp_path / "data"),
        "store": {"url": f"file://{tmp_path}/store", "options": {"secret_access_key": STORES}},
        "catalog": {"properties": {**own, "s3.secret-access-key": OWNS}},
        "topics": [{"pattern": "orders", "copies": [{"table": "orders_projection", "catalog": catalog}]}],
        "repartition": {"spark": {"spark.hadoop.fs.s3a.secret.key": SPARKS, "spark.driver.memory": "512m"}},
    }
    config.write_text(json.dumps(settings))
    found = open_backend(config, None)
    yield found
    found.catalog.close()


def test_the_settings_of_jobs_have_secrets_too(backend: Backend) -> None:
    found = settings_secrets(backend.settings)
    assert {*SECRETS, f"id:{PROJECTIONS}"} <= found
    assert not {"512m", "http://c", "mart"} & found


def test_what_a_job_leaves_in_the_store(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    (projection,) = declared_projections(backend.settings, "orders", "orders")

    def pin() -> Any:
        raise ValueError(SAID)

    source: Any = SimpleNamespace(owner=OWNER, backend=backend, pin=pin, name=("kafka", "orders"))
    target: Any = SimpleNamespace(catalog=None)
    with pytest.raises(RepartitionError) as raised:
        ProjectionJob(session=None, source=source, source_catalog="c", projection=projection, target=target).run()
    found = read_one(backend.store, projection.key(OWNER.topic_id))
    assert found is not None
    assert found.failure is not None
    assert found.failure.message == str(raised.value) == f"ValueError: {BLANK}"


@pytest.mark.parametrize("error", [RepartitionError, BridgeError])
@pytest.mark.usefixtures("backend")
def test_what_is_printed(error: type[RepartitionError | BridgeError]) -> None:
    said: list[str] = []
    made: Any = error("spark", SAID)  # type: ignore[arg-type]
    lines(said.append, steps=True)(ProjectionName("orders", "orders_projection"), Failed(made))
    assert said == [f"orders_projection: failed: {hide(str(made))}"]
    assert BLANK in said[0]


@pytest.mark.usefixtures("backend")
def test_what_a_report_says() -> None:
    assert first_line(ValueError(f"{SAID}\nplan")) == BLANK


def test_other_settings_have_other_secrets(backend: Backend) -> None:
    assert backend.settings.store is not None
    redaction.remember_settings(frozenset({"anothers-hunter2"}))
    assert hide(f"anothers-hunter2 {OWNS}") == f"{HIDDEN} {OWNS}"
