"""One process that tries inputs of one target, one after another, and writes down which before it tries it.

Its parent sees from the shared page how far it has come, and what it was at when it died.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rsm_bridge.logs import configure_logs
from tests.fuzz.meter import Meter
from tests.fuzz.outcome import worded
from tests.fuzz.page import Page, Stage
from tests.fuzz.registry import target_named
from tests.fuzz.target import MIB, Target, WrongError

#: Address space beyond what a prepared process has.
ADDRESS_SPACE_BYTES = 1536 * MIB
#: Inputs after which allocators give back what they kept for later: in pieces it adds up, and to no input's account.
SETTLE_EVERY = 500
FAILURES_MAX = 20
CORPUS_MAX = 400
#: Larger inputs say nothing that smaller ones do not.
CORPUS_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Orders:
    """What a parent asks of a child, as its command line.

    Attributes:
        target: name.
        seed: of all inputs, each with its number.
        first: number of the first input.
        inputs: how many there shall be in all, those of earlier children too; 0: as many as there is time for.
        until: `time.monotonic()` after which no input is begun but the first; 0: none.
        page: file of the shared page.
        failed: folder of failing inputs.
        corpus: folder of kept inputs.
    """

    target: str
    seed: str
    first: int
    inputs: int
    until: float
    page: Path
    failed: Path
    corpus: Path

    def words(self) -> list[str]:
        """For :meth:`read`."""
        return [str(getattr(self, name)) for name in self.__slots__]

    @classmethod
    def read(cls, words: Sequence[str]) -> Orders:
        """Back from :meth:`words`."""
        target, seed, first, inputs, until, page, failed, corpus = words
        return cls(target, seed, int(first), int(inputs), float(until), Path(page), Path(failed), Path(corpus))


def try_one(target: Target, data: bytes, meter: Meter) -> tuple[str, int]:
    """Runs one input.

    Returns:
        What came of it, and how much memory it added at its peak, in bytes.

    Raises:
        Exception: it failed.
    """
    before = meter.begin()
    started = time.monotonic()
    found = target.run(data)
    seconds = time.monotonic() - started
    added = meter.peak() - before
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


def _settled() -> None:
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def _tried(orders: Orders, target: Target, page: Page, meter: Meter) -> int:
    """Tries all inputs; 3 where too many failed, else 0."""
    corpus = [file.read_bytes() for file in sorted(orders.corpus.glob("*.input"))][:CORPUS_MAX]
    seen: set[str] = set()
    known: set[str] = set()
    at = page.read()
    at.stage, at.begun = Stage.TRYING, orders.first
    started, before = time.monotonic(), at.seconds
    while at.ended < orders.inputs or orders.inputs == 0:
        if orders.until and time.monotonic() > orders.until and at.begun > orders.first:
            break
        rng = random.Random(f"{orders.target} {orders.seed} {at.begun}")
        data = target.make(rng, corpus)
        number, at.begun = at.begun, at.begun + 1
        page.write(at, data)
        try:
            words, added = try_one(target, data, meter)
            at.peak = max(at.peak, added)
            _grown(orders.corpus, corpus, data, words, seen, rng)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            at.failures += 1
            if worded(error) not in known:
                known.add(worded(error))
                _saved(orders.failed, number, data, error)
        at.ended += 1
        at.seconds = before + time.monotonic() - started
        page.write(at)
        if at.ended % SETTLE_EVERY == 0:
            _settled()
        if at.failures >= FAILURES_MAX:
            return 3
    return 0


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when all was tried, 3 when too many inputs failed."""
    orders = Orders.read(arguments)
    faulthandler.enable()
    configure_logs()  # as a bridge logs; into the file that standard error is
    target, page, meter = target_named(orders.target), Page(orders.page), Meter()
    target.prepare()
    gc.collect()
    gc.freeze()  # what is loaded stays; a collection then walks what inputs leave, not every module
    limit = meter.address_space() + ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    code = _tried(orders, target, page, meter)
    at = page.read()
    at.stage = Stage.ENDING
    page.write(at)
    target.close()
    return code


def _leave(arguments: Sequence[str]) -> None:
    """Ends the process for certain: threads that libraries leave behind must not keep it."""
    code = 1
    try:
        code = main(arguments)
    except BaseException:  # noqa: BLE001 - the process ends, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _leave(sys.argv[1:])
