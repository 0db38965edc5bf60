"""The broker's heap, out of the log its Java machine keeps of collections (`-Xlog:gc*`)."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.limits import COLLECTION_PAUSE_S, COLLECTION_S

# [12.345s] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 612M->87M(1024M) 4.321ms
_PAUSE = re.compile(r"\bGC\(\d+\) Pause .* (\d+)M->(\d+)M\(\d+M\)")


def heap_after_collections(log: Path, start: int) -> list[float]:
    """MiB in use after each collection written from byte `start` of the log on: what is really held."""
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", "replace")
    return [float(found.group(2)) for found in _PAUSE.finditer(text)]


@contextmanager
def collections_forced(pid: int) -> Iterator[None]:
    """Makes a Java process collect again and again during the block, at least once."""
    over = threading.Event()

    def collect() -> None:
        while True:
            subprocess.run(["jcmd", str(pid), "GC.run"], check=True, capture_output=True, timeout=COLLECTION_S)
            if over.wait(COLLECTION_PAUSE_S):
                return

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
