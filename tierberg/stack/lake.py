"""What a bridge needs beside a broker when nothing is embedded: an S3 server with one bucket, and a REST catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tierberg.stack.limits import S3_REQUEST_S
from tierberg.stack.servers.rest_catalog import RestCatalogServer, S3Warehouse
from tierberg.stack.servers.versitygw import VersityGateway

BUCKET = "lake"


class Lake:
    """Both servers as local processes; tables' metadata in `s3://lake/warehouse`, the history in `s3://lake/tierberg`.

    Attributes:
        s3: the S3 server.
        catalog: the REST catalog; its server can be killed and started alone.
        warehouse: where tables get their locations, and how the S3 server is reached.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet. The first use builds the S3 server and fetches the catalog's jars: minutes."""
        self.s3 = VersityGateway(folder / "s3")
        self.warehouse = S3Warehouse(
            uri=f"s3://{BUCKET}/warehouse",
            endpoint=self.s3.endpoint,
            access_key=self.s3.access_key,
            secret_key=self.s3.secret_key,
        )
        self.catalog = RestCatalogServer(folder / "catalog", self.warehouse)

    def client(self) -> Any:
        """A boto3 client of the S3 server; close it."""
        return boto3.client(
            "s3",
            endpoint_url=self.s3.endpoint,
            region_name=self.warehouse.region,
            aws_access_key_id=self.s3.access_key,
            aws_secret_access_key=self.s3.secret_key,
            config=Config(connect_timeout=S3_REQUEST_S, read_timeout=S3_REQUEST_S),
        )

    def keys(self, prefix: str) -> list[str]:
        """Keys of the bucket that begin with `prefix`."""
        client = self.client()
        try:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
            return [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        finally:
            client.close()

    def bridge_settings(self) -> dict[str, Any]:
        """Sections `store` and `catalog` of `tierberg.yaml`."""
        return {
            "store": {
                "url": f"s3://{BUCKET}/tierberg",
                "options": {
                    "endpoint": self.s3.endpoint,
                    "region": self.warehouse.region,
                    "access_key_id": self.s3.access_key,
                    "secret_access_key": self.s3.secret_key,
                    "allow_http": "true",
                },
            },
            "catalog": {"name": "lake", "properties": self.catalog.client_properties()},
        }

    def start(self) -> None:
        """Start both and make the bucket; when it returns, both answer.

        Raises:
            StackError: one did not. Neither is left running.
        """
        try:
            self.s3.start()
            self._make_bucket()
            self.catalog.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both in order."""
        self.catalog.stop()
        self.s3.stop()

    def _make_bucket(self) -> None:
        client = self.client()
        try:
            if BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
        finally:
            client.close()
