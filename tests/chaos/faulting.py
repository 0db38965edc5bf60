"""The lanes at work: each a thread that takes its plan's next fault, does it, and writes down what happened."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from tests.chaos.fault_acts import Acts, NotNow
from tests.chaos.plan import Fault, Kind, faults, lanes


class Faulting:
    """Runs until :meth:`stop`.

    Attributes:
        done: faults by name.
        passed_over: those that could not be had.
        broken: faults that ended with an error: a server that did not come back.
        now: what each lane is at.
    """

    def __init__(
        self, seed: int, brokers: int, names: Collection[str], acts: Acts, journal: Path, say: Callable[[str], None]
    ) -> None:
        self.done: Counter[str] = Counter()
        self.passed_over: Counter[str] = Counter()
        self.broken: list[str] = []
        self.now: dict[str, str] = {}
        self._acts, self._journal, self._say = acts, journal, say
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(seed, lane, kinds), name=f"lane-{lane}")
            for lane, kinds in lanes(brokers, names).items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Cuts what is under way short and waits until it has ended."""
        self._acts.ended.set()
        for thread in self._threads:
            thread.join(900)

    def _run(self, seed: int, lane: str, kinds: dict[str, Kind]) -> None:
        for fault in faults(seed, lane, kinds):
            self.now[lane] = "-"
            if self._acts.ended.wait(fault.after_s):
                return
            self.now[lane] = fault.name
            self._one(lane, fault)

    def _one(self, lane: str, fault: Fault) -> None:
        begun = time.monotonic()
        try:
            target = self._acts.act(fault)
        except NotNow:
            self.passed_over[fault.name] += 1
            return
        except Exception as error:  # noqa: BLE001 - a lane goes on; the report has it
            self.broken.append(f"{fault.name}: {error!r}")
            self._say(f"fault {fault.name} broke: {error!r}")
            self._write(lane, fault, begun, traceback.format_exc())
            return
        self.done[fault.name] += 1
        self._write(lane, fault, begun, target)

    def _write(self, lane: str, fault: Fault, begun: float, target: str) -> None:
        line = {
            "at_s": round(begun - self._begun, 2),
            "wall": time.strftime("%H:%M:%S", time.localtime(time.time() - (time.monotonic() - begun))),
            "took_s": round(time.monotonic() - begun, 2),
            "lane": lane,
            "fault": fault.name,
            "target": target,
        }
        with self._lock, self._journal.open("a") as out:
            out.write(json.dumps(line) + "\n")
