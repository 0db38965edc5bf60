"""A fair sample of `make histories`: a few thousand steps in each world, every action with each of its faults."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.histories.generator import ACTIONS, RETENTIONS
from tests.histories.kafka_steps import COPY, DELETE, OVERLAPS
from tests.histories.row_oracle import JUDGED
from tests.histories.running import Counts, run_history, shrink, text_of
from tests.histories.world import COMMITS, PLACES, RECREATE, STORE

HISTORIES_PER_WORLD = 550
STEPS_MIN = 60_000
TIMES_MIN = 20
#: What each action must have had, beside having run.
KINDS: dict[str, tuple[str, ...]] = {
    "write": ("without rows",),
    "clean": ("a whole segment",),
    "end": ("commit", "abort", "of no transaction", "spans segments"),
    "replicate": ("with truncation",),
    "elect": ("with truncation", "without truncation"),
    "restarts": ("over 8",),
    "rebuild": ("history lost",),
    "delete_records": ("inside a segment",),
    "copy": (*COPY[1:], *OVERLAPS, "checkpoint begins above the base", "over 8 epochs", "peeked", "no rows"),
    "withdraw": ("after the index", "before the index"),
    "delete": (*DELETE[1:], "below the log start", "epochs unknown to the leader"),
    "time": ("over a day",),
    "clock": ("a day",),
    "publish": (*COMMITS[1:], *STORE[1:], *PLACES[1:], "rewind", "refused", "fails", "reclaimed", "crash in a reclaim"),
    "late_landing": ("lands", "refused"),
}
#: Rarer: once is enough.
ONCE = {
    ("recreate", RECREATE[1]),
    ("delete", "epochs unknown to the leader"),
}


@pytest.mark.timeout(1200)
def test_a_sample_of_histories_goes_right(capsys: pytest.CaptureFixture[str]) -> None:
    JUDGED.clear()
    counts = Counts()
    for clean in (True, False):
        for retention in RETENTIONS:
            for seed in range(HISTORIES_PER_WORLD):
                failure = run_history(seed, clean=clean, retention=retention, counts=counts)
                assert failure is None, text_of(shrink(failure))
    with capsys.disabled():
        print(f"\n{counts.report()}\n{dict(JUDGED)}")
    assert counts.steps >= STEPS_MIN
    wanted = Counter({(name, ""): counts.actions[name] for name in ACTIONS})
    wanted.update({(name, kind): counts.kinds[name, kind] for name, kinds in KINDS.items() for kind in kinds})
    rare = {pair: wanted.get(pair, 0) for pair in {*wanted, *((n, k) for n, ks in KINDS.items() for k in ks)}}
    assert not {pair: n for pair, n in rare.items() if n < (1 if pair in ONCE else TIMES_MIN)}
    assert not [kind for name, kind in counts.kinds if kind.startswith("stuck")]
    assert JUDGED["owed"] > 0.8 * JUDGED["found"]
