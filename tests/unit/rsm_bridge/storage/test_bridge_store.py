"""The store interface, alike on a folder, in memory and on two S3 servers: moto, and Versity's gateway as a process."""

from __future__ import annotations

import functools
import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError, InUseError, ObjectNotFoundError, SettingsError, StoreError
from rsm_bridge.limits import UPLOAD_PART_BYTES
from rsm_bridge.storage.local import FolderLock, LocalObjectStore
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from tests.support.s3_server import S3Server, moto_server
from tierberg.stack.servers.versitygw import VersityGateway, can_be_had

RACES = [f"race-{number}" for number in range(5)]


@pytest.fixture(scope="module")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    server = VersityGateway(tmp_path_factory.mktemp("gateway"))
    server.start()
    yield S3Server(server.endpoint, server.access_key, server.secret_key)
    server.stop()


#: The first use of the gateway builds it.
GATEWAY = pytest.param("gateway", marks=[pytest.mark.e2e, pytest.mark.timeout(1300)])


@pytest.fixture(params=["folder", "memory", "moto", GATEWAY])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(load_settings(None, {"data_dir": tmp_path}))
    if request.param == "memory":
        return open_store(load_settings(None, {"store": {"url": "memory://"}}))
    s3: S3Server = request.getfixturevalue(request.param)
    url = f"s3://{s3.new_bucket('bucket')}/root"
    # moto is slow on a busy machine; what is tested here is right and wrong, not the time.
    return open_store(
        load_settings(None, {"store": {"url": url, "options": s3.store_options(), "fetch_timeout": "10s"}})
    )


def test_put_if_absent_writes_once(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b", b"first")
    assert not store.put_if_absent("a/b", b"second")
    assert store.read("a/b").data == b"first"
    assert store.size("a/b") == 5


def test_of_many_puts_if_absent_one_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        for key in RACES:
            won = list(threads.map(lambda number, key=key: store.put_if_absent(key, b"%d" % number), range(8)))
            assert won.count(True) == 1
            assert store.read(key).data == b"%d" % won.index(True)


def test_compare_and_swap(store: ObjectStore) -> None:
    store.put_if_absent("k", b"one")
    before = store.read("k")
    assert store.replace("k", b"two", before.version)
    assert not store.replace("k", b"three", before.version)
    assert store.read("k").data == b"two"


def test_compare_and_swap_of_what_is_not_there(store: ObjectStore) -> None:
    assert not store.replace("nothing", b"x", "version")
    with pytest.raises(ObjectNotFoundError):
        store.read("nothing")


def test_of_many_swaps_one_wins(store: ObjectStore, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["store"] == "moto":
        pytest.skip("moto checks If-Match and writes in two steps; the gateway is asked instead")
    with ThreadPoolExecutor(8) as threads:
        for key in RACES:
            store.put_if_absent(key, b"start")
            version = store.read(key).version
            swap = functools.partial(store.replace, key, version=version)
            won = list(threads.map(lambda number, swap=swap: swap(b"%d" % number), range(8)))
            assert won.count(True) == 1
            assert store.read(key).data == b"%d" % won.index(True)


def test_ranges_are_exact_or_an_error(store: ObjectStore) -> None:
    store.put_if_absent("data", bytes(range(100)))
    assert store.get_range("data", 10, 5) == bytes(range(10, 15))
    assert [bytes(part) for part in store.get_ranges("data", [(90, 10), (0, 1)])] == [bytes(range(90, 100)), b"\0"]
    assert store.get_ranges("data", []) == []
    for start, length in ((95, 10), (100, 1), (500, 4)):
        with pytest.raises(BridgeError, match="shorter than its index says") as short:
            store.get_range("data", start, length)
        assert short.value.kind == "corrupt_object"
    with pytest.raises(ObjectNotFoundError):
        store.get_range("nothing", 0, 1)


def test_the_head_of_an_object(store: ObjectStore) -> None:
    store.put_if_absent("data", b"0123456789")
    store.put_if_absent("empty", b"")
    assert bytes(store.head_bytes("data", 4)) == b"0123"
    assert bytes(store.head_bytes("data", 400)) == b"0123456789"
    assert bytes(store.head_bytes("empty", 4)) == b""
    with pytest.raises(ObjectNotFoundError):
        store.head_bytes("nothing", 4)


def test_listings_are_sorted_and_start_after_a_key(store: ObjectStore) -> None:
    keys = [f"index/t/{number:03}" for number in range(30)]
    for key in reversed(keys):
        store.put_if_absent(key, b"x")
    store.put_if_absent("other/t", b"x")
    assert [listed.key for listed in store.list_after("index/")] == keys
    assert [listed.key for listed in store.list_after("index/", keys[20])] == keys[21:]
    assert list(store.list_after("index/", keys[-1])) == []
    assert list(store.list_after("missing/")) == []
    listed = next(iter(store.list_after("index/")))
    assert listed.size == 1
    assert listed.modified_ms > 1_600_000_000_000


def test_folders(store: ObjectStore) -> None:
    for key in ("index/a/1", "index/b/1", "index/b/2"):
        store.put_if_absent(key, b"x")
    assert sorted(folder.strip("/") for folder in store.list_folders("index/")) == ["index/a", "index/b"]


def test_delete_many_ignores_what_is_gone(store: ObjectStore) -> None:
    store.put_if_absent("a", b"x")
    store.put_if_absent("b", b"x")
    store.delete_many(["a", "never", "b"])
    store.delete_many([])
    assert list(store.list_after("")) == []


def test_an_upload_is_nothing_before_its_commit(store: ObjectStore) -> None:
    data = os.urandom(3 * UPLOAD_PART_BYTES + 17)
    with store.open_upload("up/data") as upload:
        for start in range(0, len(data), 1_000_003):
            upload.write(data[start : start + 1_000_003])
        assert list(store.list_after("up/")) == []
        assert upload.size == upload.tell() == len(data)
        upload.commit()
    assert store.read("up/data").data == data


@pytest.mark.parametrize("size", [0, 100, 2 * UPLOAD_PART_BYTES + 1])
def test_an_upload_that_is_left_leaves_nothing(store: ObjectStore, size: int) -> None:
    with pytest.raises(KeyError), store.open_upload("up/data") as upload:  # noqa: PT012 the block is what is tested
        upload.write(bytes(size))
        raise KeyError
    upload = store.open_upload("up/other")
    upload.write(bytes(size))
    upload.abort()
    upload.abort()
    with pytest.raises(StoreError, match="has ended"):
        upload.write(b"x")
    with pytest.raises(StoreError, match="has ended"):
        upload.commit()
    assert list(store.list_after("up/")) == []


def test_names_of_objects_and_back(store: ObjectStore) -> None:
    uri = store.uri("data/t/0/x.parquet")
    assert "://" in uri
    assert store.key(uri) == "data/t/0/x.parquet"
    assert store.key("file:///elsewhere/x") is None


def test_only_a_folder_belongs_to_one_process(store: ObjectStore) -> None:
    assert store.single_process is isinstance(store, LocalObjectStore)


def test_two_bridges_cannot_share_a_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(SettingsError, match="in use by another bridge"):
        FolderLock(tmp_path)
    lock.close()
    FolderLock(tmp_path).close()


def test_a_store_belongs_to_one_process_whatever_its_data_dir_is(tmp_path: Path) -> None:
    owned = LocalObjectStore(tmp_path).own()
    with pytest.raises(InUseError, match=f"store {tmp_path} is in use by another bridge"):
        LocalObjectStore(tmp_path).own()
    owned.close()
    LocalObjectStore(tmp_path).own().close()


def test_what_uploads_that_died_have_left_goes_with_the_next_owner(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    assert store.put_if_absent("data/t/0/whole.parquet", b"whole")
    upload = store.open_upload("data/t/0/half.parquet")
    upload.write(b"x" * 20_000_000)
    deadline = time.monotonic() + 20
    while not list(tmp_path.rglob("half.parquet#*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    current = store.read("data/t/0/whole.parquet")
    assert store.replace("data/t/0/whole.parquet", b"another", current.version)
    store.own().close()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".bridge.lock#1", ".swap.lock#1", "data/t/0/whole.parquet"]
    assert [listed.key for listed in store.list_after("")] == ["data/t/0/whole.parquet"]


def test_bytes_are_on_disk_before_they_take_the_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two would leave an object without the bytes of either."""
    store = LocalObjectStore(tmp_path)
    store.put_if_absent("index/a", b"before")
    version = store.read("index/a").version
    seen: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(path: Path, target: str) -> Path:
        seen.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    assert store.replace("index/a", b"after", version)
    assert seen == ["file", "rename", "folder"]
    assert store.read("index/a").data == b"after"


def test_what_is_acknowledged_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = LocalObjectStore(tmp_path / "store")
    root = str((tmp_path / "store").resolve())
    store.put_if_absent("index/t/0/a", b"x")
    assert {f"{root}/index/t/0/a", f"{root}/index/t/0", f"{root}/index/t", f"{root}/index", root} <= synced
    synced.clear()
    with store.open_upload("data/t/b") as upload:
        upload.write(b"x")
        upload.commit()
    assert {f"{root}/data/t/b", f"{root}/data/t", root} <= synced
    synced.clear()
    store.put_if_absent("index/t/0/b", b"x", sync=False)
    assert not synced


def test_a_store_that_is_away_is_an_outage_and_no_damage(tmp_path: Path) -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "access_key_id": "a", "secret_access_key": "b"}
    settings = load_settings(
        None, {"store": {"url": "s3://b/p", "options": {**options, "allow_http": "true"}, "upload_timeout": "100ms"}}
    )
    store = open_store(settings)
    done = threading.Event()
    kinds: list[str] = []

    def call() -> None:
        for work in (lambda: store.read("x"), lambda: store.get_range("x", 0, 1)):
            try:
                work()
            except BridgeError as error:
                kinds.append(error.kind)
        done.set()

    threading.Thread(target=call, daemon=True).start()
    assert done.wait(30)
    assert kinds == ["store_unavailable"] * 2


def test_wrong_store_options_are_named() -> None:
    with pytest.raises(SettingsError, match="store:"):
        open_store(load_settings(None, {"store": {"url": "s3://bucket", "options": {"no_such_option": "1"}}}))


def test_a_put_that_a_crash_cut_off_is_seen_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalObjectStore(tmp_path / "store")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", crash)
        patched.setattr(os, "unlink", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            store.put_if_absent("index/t/0/a", b"cut")
    assert len(list((tmp_path / "store/index/t/0").iterdir())) == 1
    assert list(store.list_after("index/")) == []
    # Nor does it stand in the way of the next attempt.
    assert LocalObjectStore(tmp_path / "store").put_if_absent("index/t/0/a", b"whole")
    assert store.read("index/t/0/a").data == b"whole"
    assert [listed.key for listed in store.list_after("index/")] == ["index/t/0/a"]


@pytest.mark.parametrize("name", ["write", "link"])
def test_a_put_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    store = LocalObjectStore(tmp_path / "store")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, name, full)
        with pytest.raises(StoreError, match="No space left"):
            store.put_if_absent("index/t/0/a", b"x")
    assert list((tmp_path / "store/index/t/0").iterdir()) == []
    assert store.put_if_absent("index/t/0/a", b"x" * 5_000_000)
    assert store.read("index/t/0/a").data == b"x" * 5_000_000
    assert [path.name for path in (tmp_path / "store/index/t/0").iterdir()] == ["a"]


def test_a_store_whose_folder_is_gone_takes_nothing(tmp_path: Path) -> None:
    """Its disk is not mounted, say: a new, empty store in its place would look like one that lost everything."""
    folder = tmp_path / "store"
    store = LocalObjectStore(folder)
    assert store.put_if_absent("index/t/0/a", b"x")
    with store.open_upload("data/t/a") as upload:
        upload.write(b"x" * 100)
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="is gone"):
            upload.commit()
    with pytest.raises(StoreError, match=r"is gone, or another .*: is its disk mounted"):
        store.put_if_absent("index/t/0/b", b"x")
    with pytest.raises(StoreError, match="is gone"):
        store.open_upload("data/t/b")
    with pytest.raises(StoreError, match="is gone"):
        store.replace("index/t/0/a", b"y", "v")
    assert not folder.exists()
    folder.mkdir()  # where the disk is to be mounted
    with pytest.raises(StoreError, match="another folder"):
        store.put_if_absent("index/t/0/b", b"x")
    assert not any(folder.iterdir())
    folder.rmdir()
    (tmp_path / "elsewhere").rename(folder)
    assert store.put_if_absent("index/t/0/b", b"x")


@pytest.mark.parametrize("url", [None, "named"])
def test_a_bridge_with_tables_does_not_begin_an_empty_store(tmp_path: Path, url: str | None) -> None:
    folder = tmp_path / ("store" if url is None else url)
    catalog = open_catalog(embedded_settings(tmp_path))
    catalog.create_namespace("kafka")
    catalog.create_table("kafka.orders", pa.schema([("n", pa.int32())]))
    settings = load_settings(None, {"data_dir": tmp_path, **({"store": {"url": folder.as_uri()}} if url else {})})
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"nothing is in .* has tables: is the disk of the store mounted"):
            open_store(settings)
        assert not folder.exists() or not any(folder.iterdir())
        folder.mkdir(exist_ok=True)
    (tmp_path / "catalog.db").rename(tmp_path / "catalog.before")
    assert open_store(settings).put_if_absent("index/t/0/a", b"x")
    (tmp_path / "catalog.before").rename(tmp_path / "catalog.db")
    assert open_store(settings).put_if_absent("index/t/0/b", b"x")
