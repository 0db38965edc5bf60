"""Two bridges whose catalog is AWS Glue, by moto."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.catalog_smoke import Deployment, smoke
from tests.support.s3_server import REGION, moto_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SECRET = "hunter2-hunter2"


def test_copy_conflict_and_delete(tmp_path: Path) -> None:
    with moto_server(secret_key=SECRET) as server:
        bucket = server.new_bucket("smoke")
        properties = {
            "type": "glue",
            "glue.endpoint": server.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": server.access_key,
            "glue.secret-access-key": SECRET,
            "warehouse": f"s3://{bucket}/warehouse",
            **server.catalog_properties(),
        }
        given = Deployment(
            {"url": f"s3://{bucket}/history", "options": server.store_options(), "fetch_timeout": "10s"},
            {"properties": properties},
            lambda: {SECRET},
        )
        smoke(given, tmp_path)
