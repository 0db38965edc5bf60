"""Spark on the REST catalog whose tokens end soon, told of it by PyIceberg's settings, as jobs of projections are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from repartition.spark.session import spark_session
from repartition.spark.targets import open_targets
from rsm_bridge.storage.backend import open_backend
from tests.e2e.e2e_projections import spark_conf
from tests.e2e.test_e2e_catalog_smoke_rest import TOKEN_S, rest_catalog, store
from tests.support.token_gate import CLIENT_ID, CLIENT_SECRET, TokenGate

# The first use builds the S3 server and fetches jars. Spark's client leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Asked(TokenGate):
    """`forms`: what clients asked for tokens with."""

    def __init__(self) -> None:
        super().__init__(TOKEN_S)
        self.forms: list[dict[str, list[str]]] = []

    def exchange(self, authorization: str | None, form: bytes) -> tuple[int, bytes]:
        self.forms.append(parse_qs(form.decode()))
        return super().exchange(authorization, form)


@pytest.mark.parametrize("scope", [None, "PRINCIPAL_ROLE:ALL"])
def test_spark_takes_the_login_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str | None
) -> None:
    """Tokens, an endpoint whose buckets are in the path, and a key from the environment."""
    with rest_catalog(tmp_path) as (_, s3, bucket, proxy):
        proxy.gate = gate = Asked()
        oauth2 = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "token_url": f"{proxy.uri}{gate.path}"}
        login = {"type": "oauth2", "oauth2": oauth2 | ({} if scope is None else {"scope": scope})}
        files = s3.catalog_properties()
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", files.pop("s3.secret-access-key"))
        properties: dict[str, Any] = {"type": "rest", "uri": proxy.uri, "auth": login, **files}
        config = tmp_path / "tierberg.yaml"
        settings = {"store": store(s3, bucket), "catalog": {"name": "lake", "properties": properties}}
        config.write_text(yaml.safe_dump(settings))
        place = open_backend(config, tmp_path)
        _, conf = open_targets(place, ())
        gate.forms.clear()
        with spark_session(conf, spark_conf(tmp_path)) as session:
            session.sql("CREATE NAMESPACE lake.space")
            session.sql("CREATE TABLE lake.space.numbers AS SELECT id FROM range(3)")
            time.sleep(TOKEN_S + 1)
            session.sql("INSERT INTO lake.space.numbers SELECT id FROM range(4)")
            assert session.table("lake.space.numbers").count() == 7
            asked = [form for form in gate.forms if "client_id" in form]
        assert len(asked) >= 2, "a new token in time"
        assert {form["grant_type"][0] for form in gate.forms} == {"client_credentials"}
        assert {tuple(form.get("scope", ())) for form in asked} == {() if scope is None else (scope,)}
        assert place.catalog.load_table(("space", "numbers")).scan().to_arrow().num_rows == 7
        place.catalog.close()
