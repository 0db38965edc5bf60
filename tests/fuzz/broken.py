"""Targets that fail on purpose, one in each way that must be noticed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from converter.kernels.kernel import kernel
from converter.types import Int64Array
from tests.fuzz.target import MIB, Outcome, Target, WrongError


@kernel
def _beside(array: Int64Array) -> int:
    return int(array[len(array) + 5])


class Broken(Target):
    """Works nine times of ten."""

    seconds_max = 1.0
    memory_bytes_max = 64 * MIB

    def __init__(self, name: str, fail: Callable[[], object]) -> None:
        self.name = name
        self._fail = fail

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        return rng.randbytes(4)

    def run(self, data: bytes) -> Outcome:
        if data[0] % 10 == 0:
            self._fail()
        return Outcome("works", _refuse if self.name == "broken-judge" and data[0] % 10 == 0 else None)


class _Lingering(Broken):
    """Works, and leaves a thread that no interpreter would end by itself."""

    def __init__(self) -> None:
        super().__init__("lingering", lambda: None)

    def prepare(self) -> None:
        threading.Thread(target=threading.Event().wait, name="left behind").start()


class _Unending(Broken):
    """Works, and cannot be closed."""

    def __init__(self, name: str, close: Callable[[], object]) -> None:
        super().__init__(name, lambda: None)
        self._close = close

    def close(self) -> None:
        self._close()


def _refuse() -> None:
    raise WrongError("another byte")


def _raise() -> None:
    raise ZeroDivisionError


_FAILURES: dict[str, Callable[[], object]] = {
    "broken-crash": os.abort,
    "broken-hang": lambda: time.sleep(3600),
    "broken-memory": lambda: np.ones(40 * MIB).sum(),
    "broken-address-space": lambda: np.empty(1 << 40, np.uint8),
    "broken-error": _raise,
    "broken-bounds": lambda: _beside(np.zeros(3, np.int64)),
    "broken-judge": lambda: None,
}


def _maker(name: str) -> Callable[[], Target]:
    return lambda: Broken(name, _FAILURES[name])


#: By name, like registry.targets().
BROKEN: dict[str, Callable[[], Target]] = {name: _maker(name) for name in _FAILURES} | {
    "broken-close": lambda: _Unending("broken-close", _raise),
    "broken-end": lambda: _Unending("broken-end", lambda: time.sleep(3600)),
}
#: Not broken: what it leaves behind must not look so.
SOUND: dict[str, Callable[[], Target]] = {"lingering": _Lingering}
