"""The store behind the S3 protocol: segments, indexes and tombstones over HTTP, tables that point there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered
from tierberg.stack.servers.versitygw import VersityGateway, can_be_had
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1300)]  # the first use of the gateway builds it

BUCKET = "history"
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 server on loopback with one bucket."""

    endpoint: str
    access_key: str = "test"
    secret_key: str = "test"

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


@contextmanager
def moto() -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Bucket(f"http://{host}:{port}")
    server.stop()


@contextmanager
def gateway(folder: Path) -> Iterator[Bucket]:
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    server = VersityGateway(folder)
    server.start()
    yield Bucket(server.endpoint, server.access_key, server.secret_key)
    server.stop()


@pytest.fixture(scope="module", params=["moto", "gateway"])
def bucket(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with moto() if request.param == "moto" else gateway(tmp_path_factory.mktemp("gateway")) as made:
        made.client.create_bucket(Bucket=BUCKET)
        yield made


@pytest.fixture(scope="module")
def s3_pair(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    store = {
        "url": f"s3://{BUCKET}/tierberg",
        "options": {
            "endpoint": bucket.endpoint,
            "region": REGION,
            "access_key_id": bucket.access_key,
            "secret_access_key": bucket.secret_key,
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
        },
        # The test server is slow and shares two cores with the broker; its time is not what is tested.
        "fetch_timeout": "10s",
    }
    started = start_pair(tmp_path_factory.mktemp("s3"), bridge_settings={"store": store})
    yield started
    started.broker.stop()
    started.bridge.stop()


def catalog(pair: Pair, bucket: Bucket) -> SqlCatalog:
    folder = pair.bridge.folder
    return SqlCatalog(
        "tierberg",
        **{
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": (folder / "warehouse").as_uri(),
            "s3.endpoint": bucket.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": bucket.access_key,
            "s3.secret-access-key": bucket.secret_key,
        },
    )


def test_history_in_a_bucket(s3_pair: Pair, bucket: Bucket) -> None:
    pair, draw = s3_pair, random.Random(3)
    pair.admin.create_topic("lake")
    sender = Sender(pair.broker, "lake", compression_type="zstd")
    records = [Rec(draw.choice([None, b"k"]), draw.randbytes(900), (("h", None),)) for _ in range(4000)]
    sender.send(records)
    wait_tiered(pair, "lake")
    same(read(pair.broker, "lake"), sender.log.committed)
    topic_id = pair.admin.topic_id("lake")
    assert bucket.keys(f"tierberg/index/{topic_id}/")
    assert bucket.keys(f"tierberg/data/{topic_id}/")

    lake = catalog(pair, bucket)
    wait_for("all rows to be published", lambda: lake.load_table("kafka.lake").scan().count() == 4000, 60, 0.5)
    rows = lake.load_table("kafka.lake").scan().to_arrow()
    same(rows_by_offset(rows), sender.log.committed)

    pair.bridge.kill()
    pair.bridge.start()
    same(read(pair.broker, "lake"), sender.log.committed)

    pair.admin.delete_topic("lake")
    wait_for("rows to leave", lambda: lake.load_table("kafka.lake").scan().count() == 0, 30, 0.5)
    everything = [f"tierberg/{kind}/{topic_id}/" for kind in ("index", "data", "kept")]
    wait_for("objects to leave", lambda: not any(bucket.keys(prefix) for prefix in everything), 60, 0.5)
    lake.close()
