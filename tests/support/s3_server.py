"""An S3 server as its users see it: where it is, its keys, and a bucket for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str = "a"
    secret_key: str = "b"

    def client(self) -> Any:
        """A boto3 client; to be closed by the caller."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def new_bucket(self, prefix: str) -> str:
        """The name of a bucket made for one test."""
        name = f"{prefix}-{os.urandom(4).hex()}"
        with closing(self.client()) as client:
            client.create_bucket(Bucket=name)
        return name

    def store_options(self) -> dict[str, str]:
        """`store.options` of a bridge on this server."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "allow_http": "true",
        }

    def catalog_properties(self) -> dict[str, str]:
        """What PyIceberg is given to read and write table metadata on this server."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
        }


@contextmanager
def moto_server(secret_key: str = "b") -> Iterator[S3Server]:
    """One in this process; it accepts every key."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3Server(f"http://{host}:{port}", secret_key=secret_key)
    finally:
        server.stop()
