"""Histories that once went wrong, shrunk, as steps of the world: what the random search found, or would have found."""

from __future__ import annotations

import pytest

from tests.histories.kafka_steps import Setup
from tests.histories.running import replay
from tests.histories.world import Step

FOLLOWER_COPIES: tuple[Step, ...] = (
    ("replicate", (0, 1, 0), ()),
    ("replicate", (0, 2, 0), ()),
    ("copy", (0, 0, 0, 0), ()),
)
SETTLE: Step = ("settle", (), ())
PUBLISH: Step = ("publish", (0, 0, 0, 0, 0, 0, 0), ())
FORGOTTEN: tuple[Step, ...] = (
    ("elect", (0, 2), ()),
    ("write", (0, 0, 1), ()),
    ("elect", (0, 1), ()),
    ("restarts", (0, 4, 1), ()),
    ("roll", (0, 0), ()),
    ("copy", (0, 0, 0, 0), ()),
    ("retain", (0, 1), ()),
    ("delete", (0, 0, 0, 0), ()),
    ("delete", (0, 0, 0, 0), ()),
    ("time", (1,), ()),
    ("publish", (0, 0, 0, 0, 0, 0, 1), ()),
    ("elect", (0, 2), ()),
    SETTLE,
)

HISTORIES: dict[str, tuple[Setup, tuple[Step, ...]]] = {
    "deleteRecords into a segment that is not copied yet": (
        Setup(True, "follow-kafka"),
        (
            ("end", (0, 0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("delete_records", (0, 0), ()),
            SETTLE,
        ),
    ),
    "a day after a lost reply": (
        Setup(True, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            *FOLLOWER_COPIES[:2],
            ("copy", (0, 0, 2, 0), ()),
            PUBLISH,
            ("withdraw", (0, 0, 0), ()),
            ("time", (2,), ()),
            PUBLISH,
            SETTLE,
        ),
    ),
    "a lost reply, and a clock that is a day ahead": (
        Setup(False, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 2, 0), ()),
            ("withdraw", (0, 0, 0), ()),
            ("clock", (0, 0), ()),
            SETTLE,
        ),
    ),
    "an older epoch wins back from the first offset on": (
        Setup(False, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("elect", (0, 1), ()),
            ("write", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            PUBLISH,
            ("elect", (0, 0), ()),
            SETTLE,
        ),
    ),
    "an older epoch that wins back below the floor, where the epoch began that retention cut": (
        Setup(False, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("elect", (0, 1), ()),
            ("write", (0, 1, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("retain", (0, 0), ()),
            ("delete", (0, 0, 0, 0), ()),
            ("time", (1,), ()),
            ("publish", (0, 0, 0, 0, 0, 0, 1), ()),
            ("elect", (0, 0), ()),
            SETTLE,
        ),
    ),
    "a deletion in a hole that no index can tell of": (
        Setup(True, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("restarts", (0, 55, 1), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("retain", (0, 0), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            PUBLISH,
            SETTLE,
        ),
    ),
    "a rewind over more than eight epochs": (
        Setup(False, "keep"),
        (
            ("write", (0, 0, 1), ()),
            ("replicate", (0, 1, 0), ()),
            ("restarts", (0, 4, 1), ()),
            ("elect", (0, 2), ()),
            ("write", (0, 0, 0), ()),
            ("elect", (0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            PUBLISH,
            ("elect", (0, 1), ()),
            SETTLE,
        ),
    ),
    "the name of a derived file of sixty epochs": (
        Setup(True, "follow-kafka"),
        (SETTLE, ("elect", (0, 1), ()), ("restarts", (0, 7, 1), ()), SETTLE),
    ),
    "the record of many epochs": (
        Setup(True, "follow-kafka"),
        (("restarts", (0, 4, 1), ()), SETTLE, ("retain", (0, 0), ()), SETTLE),
    ),
    "two false 404s on a listed index": (
        Setup(True, "keep"),
        (
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("end", (0, 0, 0), ()),
            *FOLLOWER_COPIES,
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("publish", (0, 0, 0, 2, 0, 0, 0), ()),
            SETTLE,
        ),
    ),
    "a file whose epochs its name did not tell is cut": (
        Setup(False, "keep"),
        (
            ("write", (0, 0, 1), ()),
            ("delete_records", (0, 0), ()),
            ("transaction", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("end", (0, 1, 1), ()),
            ("copy", (0, 0, 0, 1), ()),
            PUBLISH,
            ("elect", (0, 2), ()),
            ("end", (0, 1, 0), ()),
            SETTLE,
        ),
    ),
    "an epoch that a cut checkpoint shows from its midst on": (
        Setup(False, "follow-kafka"),
        (
            ("elect", (0, 2), ()),
            ("write", (0, 0, 0), ()),
            ("elect", (0, 0), ()),
            ("write", (0, 1, 1), ()),
            ("roll", (0, 0), ()),
            ("elect", (0, 2), ()),
            ("write", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("elect", (0, 0), ()),
            ("delete_records", (0, 0), ()),
            SETTLE,
        ),
    ),
    "a deletion below a record that was shortened": (
        Setup(True, "follow-kafka"),
        (
            ("end", (0, 0, 0), ()),
            *FOLLOWER_COPIES[:2],
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("restarts", (0, 23, 1), ()),
            ("delete_records", (0, 4), ()),
            ("roll", (0, 0), ()),
            *FOLLOWER_COPIES,
            ("copy", (0, 0, 2, 0), ()),
            ("retain", (48, 54), ()),
            ("publish", (0, 0, 4, 0, 10, 1, 0), ()),
            SETTLE,
        ),
    ),
    "a new leader's segments below the frontier, found by notice": (
        Setup(False, "follow-kafka"),
        (
            ("transaction", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("end", (0, 1, 1), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("elect", (0, 2), ()),
            ("write", (0, 1, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
            ("elect", (0, 0), ()),
            ("write", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 1, 0, 0), ()),
            ("publish", (1, 0, 0, 0, 0, 0, 0), ()),
            SETTLE,
        ),
    ),
    "a deletion in the hole of a shortened record": (
        Setup(False, "follow-kafka"),
        (
            ("write", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("elect", (0, 1), ()),
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("publish", (0, 0, 0, 0, 0, 1, 0), (("delete", (31, 42, 9, 29), ()),)),
            ("restarts", (0, 7, 1), ()),
            ("settle", (), ()),
        ),
    ),
    "a segment whose epoch goes on behind the cut is deleted": (
        Setup(True, "follow-kafka"),
        (
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("replicate", (0, 2, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("write", (0, 0, 0), ()),
            ("restarts", (0, 7, 1), ()),
            ("roll", (0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("delete_records", (0, 50), ()),
            ("replicate", (0, 2, 1), ()),
            ("copy", (0, 1, 0, 0), ()),
            ("publish", (0, 0, 0, 0, 8, 1, 0), ()),
            ("settle", (), ()),
        ),
    ),
    "a new branch that ends below where the record begins": (
        Setup(False, "follow-kafka"),
        (
            ("write", (0, 1, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("delete_records", (0, 1), ()),
            ("delete", (0, 0, 0, 0), ()),
            ("time", (1,), ()),
            ("publish", (0, 0, 0, 0, 0, 0, 1), ()),
            ("elect", (0, 1), ()),
            SETTLE,
        ),
    ),
    "a new branch under a shortened record": (
        Setup(False, "keep"),
        (
            ("elect", (0, 1), ()),
            ("restarts", (0, 7, 1), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 2, 0), ()),
            PUBLISH,
            ("elect", (0, 0), ()),
            SETTLE,
        ),
    ),
    "a transaction that one copy has aborted and another committed": (
        Setup(False, "follow-kafka"),
        (
            SETTLE,
            ("transaction", (0, 0, 0), ()),
            ("replicate", (0, 1, 0), ()),
            ("restarts", (0, 0, 1), ()),
            ("end", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            ("elect", (0, 1), ()),
            SETTLE,
        ),
    ),
    "a file shows that it died below what a shortened record tells": (
        Setup(False, "keep", 1, 4),
        (SETTLE, *FORGOTTEN),
    ),
    "an older epoch that wins back below a floor that several epochs are forgotten of": (
        Setup(False, "follow-kafka"),
        (SETTLE, *FORGOTTEN),
    ),
    "a run from the frontier that must look into a file": (
        Setup(False, "follow-kafka"),
        (
            ("restarts", (0, 0, 1), ()),
            ("elect", (0, 2), ()),
            ("write", (0, 1, 0), ()),
            ("write", (0, 1, 0), ()),
            ("write", (0, 0, 0), ()),
            ("roll", (0, 0), ()),
            ("end", (0, 0, 0), ()),
            ("elect", (0, 0), ()),
            ("write", (0, 2, 0), ()),
            ("write", (0, 0, 1), ()),
            ("roll", (0, 0), ()),
            ("copy", (0, 0, 0, 0), ()),
            PUBLISH,
            ("elect", (0, 2), ()),
            ("delete_records", (0, 4), ()),
            SETTLE,
        ),
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_that_went_wrong_goes_right(name: str) -> None:
    setup, steps = HISTORIES[name]
    error, done, trace = replay(setup, steps)
    assert not error, trace
    assert any(step[0] == "settle" for step in done)
