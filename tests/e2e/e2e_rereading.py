"""A reader that reads a whole topic over and over while something is done to what serves it."""

from __future__ import annotations

import threading
import time

from tests.e2e.e2e_support import Pair, Rec, read, same


class Rereading:
    """Reads partition 0 in a thread; every read must be what was known of the log when it began.

    Attributes:
        rounds: how often everything was read.
        slowest_s: the longest of these reads.
    """

    def __init__(self, pair: Pair, topic: str, isolation: str = "read_committed") -> None:
        """Nothing is read before something is known."""
        self.rounds = 0
        self.slowest_s = 0.0
        self._pair, self._topic, self._isolation = pair, topic, isolation
        self._known: dict[int, Rec] = {}
        self._failure: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def know(self, records: dict[int, Rec]) -> None:
        """What is tiered by now, by offset."""
        self._known = dict(sorted(records.items()))
        if not self._thread.is_alive():
            self._thread.start()

    def check(self) -> int:
        """How often everything was read; raises what went wrong."""
        if self._failure is not None:
            raise self._failure
        return self.rounds

    def stop(self) -> None:
        """Ends after the read that is under way."""
        self._end.set()
        self._thread.join(120)
        self.check()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                known, started = self._known, time.monotonic()
                found = read(self._pair.broker, self._topic, isolation=self._isolation)
                same({offset: record for offset, record in found.items() if offset <= max(known)}, known)
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                self.rounds += 1
        except BaseException as failure:  # noqa: BLE001 the test's thread raises it
            self._failure = failure
