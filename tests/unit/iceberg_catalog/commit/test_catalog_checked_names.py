"""A manifest or manifest list of ours that differs in one bit is named, and never decoded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_catalog.commit.checked_names import checked_name, require_named
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.errors import CatalogError
from tests.worlds.catalog_support import STATE, Place, make_place
from tests.worlds.foreign_support import insert

FILES: dict[str, Callable[[Table], str]] = {
    "manifest list": lambda table: table.current_snapshot().manifest_list,  # type: ignore[union-attr]
    "manifest": lambda table: table.current_snapshot().manifests(table.io)[0].manifest_path,  # type: ignore[union-attr]
}


def published(folder: Path) -> Place:
    place = make_place(folder)
    head = LiveFiles().read(place.load())
    commit(place.catalog, head, Change(append=(place.write(0, 9),)), STATE, commit_id="c", as_of_ms=17)
    return place


@pytest.mark.parametrize("file", FILES)
def test_one_bit(tmp_path: Path, file: str) -> None:
    table = published(tmp_path).load()
    path = Path(FILES[file](table).removeprefix("file://"))
    data = path.read_bytes()
    for place in random.Random(file).sample(range(8 * len(data)), 400):
        bent = bytearray(data)
        bent[place // 8] ^= 1 << place % 8
        path.write_bytes(bent)
        with pytest.raises(CatalogError, match=path.name) as failed:
            LiveFiles().read(table)
        assert failed.value.kind == "table_unreadable"
    path.write_bytes(data)
    assert len(LiveFiles().read(table).files) == 1


def test_what_engines_write_tells_nothing_and_is_read(tmp_path: Path) -> None:
    place = published(tmp_path)
    insert(place.load())
    assert len(LiveFiles().read(place.load()).foreign) == 1
    require_named("file:///t/metadata/snap-1-0-abc.avro", b"whatever")


def test_the_name_tells_the_bytes() -> None:
    assert checked_name("snap-1", b"123456789") == "snap-1-crc32c-e3069283.avro"
    require_named("s3://b/" + checked_name("snap-1", b"abc"), b"abc")
    with pytest.raises(ValueError, match="its 3 bytes have the CRC32C"):
        require_named("s3://b/" + checked_name("snap-1", b"abc"), b"abd")
