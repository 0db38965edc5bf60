"""Clients of tables' storage: shared by all loads, other ones for other credentials, and none left behind."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from iceberg_catalog.connect import file_io
from iceberg_catalog.connect.file_io import TableFileIO
from tests.worlds.catalog_support import Place, make_place

S3 = {
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.region": "us-east-1",
    "s3.access-key-id": "a",
    "s3.secret-access-key": "b",
}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_io, "_kept", type(file_io._kept)())


def client(**properties: Any) -> Any:
    io = TableFileIO({**S3, **properties})
    return io.fs_by_scheme("s3", "bucket")


def test_tables_that_reach_their_storage_in_the_same_way_share_a_client() -> None:
    assert client() is client(**{"write.data.path": "s3://bucket/elsewhere", "tierberg.owner": "other"})
    assert TableFileIO(S3).fs_by_scheme("s3", "bucket") is not TableFileIO(S3).fs_by_scheme("s3", "other")


def test_other_credentials_mean_another_client() -> None:
    first = client()
    assert client(**{"s3.secret-access-key": "two"}) is not first
    assert client(**{"s3.session-token": "lent"}) is not first
    assert client() is first


def test_clients_that_were_not_used_for_long_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_io, "FILE_SYSTEMS_MAX", 3)
    made: list[str] = []

    def ask(name: str) -> None:
        def make() -> LocalFileSystem:
            made.append(name)
            return LocalFileSystem()

        file_io.shared_file_system("file", None, {"s3.session-token": name}, make)

    for name in ("a", "b", "c", "a", "d", "a", "c", "b"):
        ask(name)
    assert made == ["a", "b", "c", "d", "b"]


def test_loads_of_a_table_have_files_of_their_own_and_one_client(tmp_path: Any) -> None:
    place: Place = make_place(tmp_path)
    first, second = place.load(), place.load()
    assert first.io is not second.io
    assert first.io.fs_by_scheme("file", "") is second.io.fs_by_scheme("file", "")  # type: ignore[attr-defined]
    assert "fs_by_scheme" not in vars(first.io), "a cache of its own would keep it in a cycle"
