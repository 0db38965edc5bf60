"""Hard links of the brokers' own segment files, taken before the brokers delete them.

A link is the same file: what a broker still appends is in it, what it truncates is gone from it. They lie in
`folder/topic id/partition/broker-base-inode.log`, transaction indexes beside them (`.txnindex`).
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.limits import LINK_POLL_S

#: Of a transaction index: version, producer id, first offset, last offset (the marker's), last stable offset.
_ENTRY = struct.Struct(">hqqqq")


class HardLinks:
    """A thread that looks at the log folders again and again."""

    def __init__(self, folder: Path, log_folders: Mapping[int, Sequence[Path]]) -> None:
        self._folder = folder
        self._log_folders = log_folders
        self._seen: set[tuple[int, str]] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hard-links")

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def files(self, topic_id: str, partition: int) -> list[Path]:
        """All that was ever seen of a partition."""
        return sorted((self._folder / topic_id / str(partition)).glob("*.log"))

    def aborts(self, log: Path) -> set[tuple[int, int]]:
        """Producer id and marker offset of what the transaction index of a linked segment has (KIP-98)."""
        indexes = log.parent.glob(f"{log.stem.rpartition('-')[0]}-*.txnindex")
        entries = (entry for index in indexes for entry in _ENTRY.iter_unpack(_whole(index.read_bytes())))
        return {(producer, last) for _, producer, _, last, _ in entries}

    def look(self) -> None:
        """Links every segment file that is new."""
        for broker, folders in self._log_folders.items():
            for log_folder in folders:
                for folder in _folders(log_folder):
                    self._link(broker, folder)

    def _run(self) -> None:
        while not self._end.wait(LINK_POLL_S):
            self.look()

    def _link(self, broker: int, folder: Path) -> None:
        try:
            topic_id = self._topic_id(folder)
            if topic_id is None:
                return
            partition = folder.name.partition(".")[0].rpartition("-")[2]
            for entry in os.scandir(folder):
                base, _, kind = entry.name.removesuffix(".deleted").partition(".")
                if kind not in ("log", "txnindex") or (entry.inode(), topic_id) in self._seen:
                    continue
                target = self._folder / topic_id / partition
                target.mkdir(parents=True, exist_ok=True)
                os.link(entry.path, target / f"{broker}-{base}-{entry.inode()}.{kind}")
                self._seen.add((entry.inode(), topic_id))
        except FileNotFoundError:
            return  # renamed or deleted while we looked

    @staticmethod
    def _topic_id(folder: Path) -> str | None:
        """As Kafka writes it, from `partition.metadata`; a broker writes that after it has made the folder."""
        lines = (folder / "partition.metadata").read_text().splitlines()
        found = [line.partition(":")[2].strip() for line in lines if line.startswith("topic_id")]
        return found[0] if found else None


def _whole(index: bytes) -> bytes:
    """Without an entry that is being written."""
    return index[: len(index) // _ENTRY.size * _ENTRY.size]


def _folders(log_folder: Path) -> list[Path]:
    try:
        found = [entry for entry in os.scandir(log_folder) if entry.is_dir() and not entry.name.startswith("__")]
    except FileNotFoundError:
        return []
    return [Path(entry.path) for entry in found if "-" in entry.name]
