"""The embedded store among processes: a bridge and the commands beside it swap and delete the same objects."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.object_store import VersionedBytes

PROCESSES = multiprocessing.get_context("spawn")
KEY = "index/x"


class SlowStore(LocalObjectStore):
    """Stops between a swap's comparison and its write until told, or half a second."""

    def __init__(self, folder: Path, compared: Event, go_on: Event) -> None:
        super().__init__(folder)
        self._compared, self._go_on = compared, go_on

    def read(self, key: str) -> VersionedBytes:
        found = super().read(key)
        self._compared.set()
        self._go_on.wait(0.5)
        return found


def swap_slowly(folder: Path, version: str, compared: Event, go_on: Event, swapped: Event) -> None:
    if SlowStore(folder, compared, go_on).replace(KEY, b"new", version):
        swapped.set()


def test_a_delete_during_another_process_swap_is_not_undone(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    assert store.put_if_absent(KEY, b"old")
    compared, go_on, swapped = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Event()
    version = store.read(KEY).version
    other = PROCESSES.Process(target=swap_slowly, args=(tmp_path, version, compared, go_on, swapped))
    other.start()
    assert compared.wait(60)
    store.delete_many([KEY])
    go_on.set()
    other.join(60)
    assert other.exitcode == 0
    # One came first: either the swap found nothing, or the delete took what it had written.
    with pytest.raises(ObjectNotFoundError):
        store.read(KEY)


def work(folder: Path, number: int, seconds: float) -> None:
    """Makes, counts up and deletes one object; every change is written down before it is made."""
    store, draw = LocalObjectStore(folder), random.Random(number)
    ends_at = time.monotonic() + seconds
    with (folder / f"log-{number}").open("w") as log:
        while time.monotonic() < ends_at:
            try:
                current = store.read(KEY)
            except ObjectNotFoundError:
                name = f"{number}.{draw.getrandbits(60)}"
                if store.put_if_absent(KEY, f"{name}.0".encode(), sync=False):
                    log.write(f"{name} made\n")
                continue
            name, _, count = current.data.decode().rpartition(".")
            if draw.random() < 0.2:
                if name.startswith(f"{number}."):  # who made it may delete it
                    store.delete_many([KEY])
                    log.write(f"{name} deleted\n")
            elif store.replace(KEY, f"{name}.{int(count) + 1}".encode(), current.version):
                log.write(f"{name} swapped {int(count) + 1}\n")


def test_what_four_processes_do_could_have_been_done_one_after_the_other(tmp_path: Path) -> None:
    """No swap is lost, and nothing that was deleted is counted up or made once more."""
    workers = [PROCESSES.Process(target=work, args=(tmp_path, number, 2.0)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    lines = [line.split() for number in range(4) for line in (tmp_path / f"log-{number}").read_text().splitlines()]
    made = [name for name, what, *_ in lines if what == "made"]
    deleted = [name for name, what, *_ in lines if what == "deleted"]
    assert len(made) == len(set(made))
    assert len(deleted) == len(set(deleted)), "an object was deleted twice: a swap had brought it back"
    swaps: dict[str, list[int]] = {}
    for name, what, *count in lines:
        if what == "swapped":
            swaps.setdefault(name, []).append(int(count[0]))
    for name, counts in swaps.items():
        assert sorted(counts) == list(range(1, len(counts) + 1)), f"swaps of {name} were lost or doubled"
    assert len(made) - len(deleted) in (0, 1)
    assert sum(map(len, swaps.values())) > 10
