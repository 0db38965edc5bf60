"""Where table metadata lies, as file systems understand it; and Google's store within our time-outs."""

from __future__ import annotations

import time

import pytest

from iceberg_catalog.connect.file_io import TableFileIO
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from tests.support.answering_server import answering


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("abfss://box@acme.dfs.core.windows.net/w/t/m.json", "box/w/t/m.json"),
        ("abfss://box/w/t/m.json", "box/w/t/m.json"),
        ("s3://bucket/w@x/m.json", "bucket/w@x/m.json"),
        ("gs://bucket/w/m.json", "bucket/w/m.json"),
        ("file:///w/a@b/m.json", "/w/a@b/m.json"),
    ],
)
def test_the_path_begins_with_bucket_or_container(location: str, path: str) -> None:
    assert TableFileIO.parse_location(location)[2] == path


def test_every_catalog_uses_it_unless_told_otherwise(tmp_path: object) -> None:
    properties = {"type": "in-memory", "warehouse": f"file://{tmp_path}"}
    for extra, used in (({}, True), ({"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}, False)):
        catalog = open_catalog(CatalogSettings("c", properties | extra))
        io = catalog._load_file_io(location=f"file://{tmp_path}")
        assert isinstance(io, TableFileIO) == used
        catalog.close()


def test_a_silent_google_store_is_given_up() -> None:
    with answering() as server:
        server.answers = lambda _: (503, b"")
        io = TableFileIO(
            {
                "gcs.service.host": server.uri,
                "gcs.oauth2.token": "x",
                "gcs.oauth2.token-expires-at": "4102444800000",
                "s3.request-timeout": "1.0",
            }
        )
        started = time.monotonic()
        with pytest.raises(OSError, match=r"(?i)retry|unavailable|503"):
            io.new_input("gs://bucket/w/m.json").open()
        assert server.seen
        assert time.monotonic() - started < 30
