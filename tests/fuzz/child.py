"""One process that tries inputs of one target, one after another, and writes down which before it tries it.

Its parent sees from the shared page how far it has come, and what it was at when it died.
"""

from __future__ import annotations

import faulthandler
import gc
import mmap
import random
import resource
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.outcome import worded
from tests.fuzz.registry import target_named
from tests.fuzz.target import MIB, Target, WrongError

#: The shared page: inputs begun, inputs ended (as the target counts them), failures, memory peak in bytes, size of the
#: input being tried; then the input itself.
PAGE = struct.Struct("<QQQQQ")
INPUT_BYTES_MAX = 64 * MIB
PAGE_BYTES = PAGE.size + INPUT_BYTES_MAX
#: Address space beyond what a prepared process has.
ADDRESS_SPACE_BYTES = 1536 * MIB
FAILURES_MAX = 20
CORPUS_MAX = 400
#: Larger inputs say nothing that smaller ones do not.
CORPUS_BYTES_MAX = 64 * 1024


class Page:
    """What parent and child both see."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PAGE_BYTES)

    def read(self) -> tuple[int, int, int, int, int]:
        """Begun, ended, failures, peak in bytes, size of the input in bytes."""
        begun, ended, failures, peak, size = PAGE.unpack_from(self._map)
        return begun, ended, failures, peak, size

    def write(self, begun: int, ended: int, failures: int, peak: int, data: bytes | None = None) -> None:
        """`data`: the input that is tried next; None: as it is."""
        size = self.read()[4] if data is None else len(data)
        if data is not None:
            self._map[PAGE.size : PAGE.size + len(data)] = data
        PAGE.pack_into(self._map, 0, begun, ended, failures, peak, size)

    def input(self) -> bytes:
        """The input being tried."""
        return bytes(self._map[PAGE.size : PAGE.size + self.read()[4]])


def memory(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def try_one(target: Target, data: bytes) -> tuple[str, int]:
    """Runs one input.

    Returns:
        What came of it, and how much memory it added at its peak, in bytes.

    Raises:
        Exception: it failed.
    """
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = memory("VmRSS")
    started = time.monotonic()
    found = target.run(data)
    seconds = time.monotonic() - started
    added = memory("VmHWM") - before
    if added > target.memory_bytes_max:
        raise WrongError(f"{len(data)} bytes took {added // MIB} MiB, allowed are {target.memory_bytes_max // MIB}")
    if seconds > target.seconds_max:
        raise WrongError(f"{len(data)} bytes took {seconds:.1f} s")
    if found.judge is not None:
        found.judge()
    return found.words, added


def _saved(folder: Path, number: int, data: bytes, error: BaseException) -> None:
    (folder / f"{number}.input").write_bytes(data)
    (folder / f"{number}.txt").write_text(
        "".join(traceback.format_exception(error)), encoding="utf-8", errors="replace"
    )
    print(f"  {number}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def _grown(folder: Path, corpus: list[bytes], data: bytes, words: str, seen: set[str], rng: random.Random) -> None:
    """Keeps an input that went a way none went before."""
    if words in seen or len(data) > CORPUS_BYTES_MAX:
        return
    seen.add(words)
    if len(corpus) < CORPUS_MAX:
        corpus.append(data)
    else:
        corpus[rng.randrange(CORPUS_MAX)] = data
    (folder / f"{len(seen)}.input").write_bytes(data)


def main(arguments: Sequence[str]) -> int:
    """target, seed, first number, how many inputs (0: until ended), page, folder of failures, folder of the corpus."""
    name, seed, first, wanted, page_path, failed, corpus_path = arguments
    faulthandler.enable()
    target, page, folder = target_named(name), Page(Path(page_path)), Path(corpus_path)
    target.prepare()
    corpus = [file.read_bytes() for file in sorted(folder.glob("*.input"))][:CORPUS_MAX]
    gc.collect()
    limit = memory("VmSize") + ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    seen: set[str] = set()
    known: set[str] = set()
    begun, (_, ended, failures, peak, _) = int(first), page.read()
    while ended < int(wanted) or int(wanted) == 0:
        rng = random.Random(f"{name} {seed} {begun}")
        data = target.make(rng, corpus)
        page.write(begun + 1, ended, failures, peak, data)
        try:
            words, added = try_one(target, data)
            peak = max(peak, added)
            _grown(folder, corpus, data, words, seen, rng)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            kind = worded(error)
            if kind not in known:
                known.add(kind)
                _saved(Path(failed), begun, data, error)
            failures += 1
            if failures >= FAILURES_MAX:
                page.write(begun + 1, ended, failures, peak)
                return 3
        begun += 1
        ended += target.parts(data)
        page.write(begun, ended, failures, peak)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
