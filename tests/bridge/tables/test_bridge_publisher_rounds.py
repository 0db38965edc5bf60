"""What one run of a table is told to look at, and when a whole listing is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rsm_bridge.errors import StoreError
from rsm_bridge.limits import WHOLE_LISTING_SECONDS
from rsm_bridge.serving import publisher as publisher_module
from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.segments.listing import Notices
from rsm_bridge.tables.publish.table_run import RetryRunError, RunResult
from tests.support.bridge_process import publisher_of, test_settings
from tests.support.eventually import eventually

TOPIC = b"t" * 16
KEY = IndexKey(topic_id=TOPIC, partition=0, last=9, base=0, segment_id=b"s" * 16)
OTHER = IndexKey(topic_id=TOPIC, partition=0, last=19, base=10, segment_id=b"s" * 16)


class Runs:
    """Notes what each run was told; `answer` is what it returns or raises."""

    def __init__(self) -> None:
        self.told: list[Notices] = []
        self.at: list[float] = []
        self.answer: Callable[[], RunResult] = lambda: RunResult(head=None, states={}, segments=[])

    def run(self, notices: Notices) -> RunResult:
        self.told.append(notices)
        self.at.append(time.monotonic())
        return self.answer()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(Publisher, "_table_run", lambda *_: made)
    monkeypatch.setattr(publisher_module, "_backoff", lambda _: 0.0)
    return made


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return publisher_of(test_settings(tmp_path, publish_interval="300ms", reclaim_grace="600s"))


@pytest.fixture
def started(publisher: Publisher) -> Iterator[Publisher]:
    publisher.start()
    yield publisher
    publisher.stop()


def once(publisher: Publisher) -> None:
    topic = publisher._topics[TOPIC]
    topic.due = float("inf")
    publisher._run(TOPIC, topic)


def partial() -> RunResult:
    return RunResult(head=None, states={}, segments=[], complete=False)


def refused() -> RunResult:
    raise RetryRunError("another bridge was faster", conflict=True)


def unknown() -> RunResult:
    raise RetryRunError("the reply was lost")


def away() -> RunResult:
    raise StoreError("no store")


def test_the_first_run_lists_all_and_later_ones_what_was_noticed(publisher: Publisher, runs: Runs) -> None:
    publisher.notify(TOPIC, KEY)
    once(publisher)
    publisher.notify(TOPIC, KEY)
    publisher.notify(TOPIC, OTHER)
    once(publisher)
    publisher.notify(TOPIC)
    once(publisher)
    assert runs.told == [
        Notices(frozenset({KEY}), whole=True),
        Notices(frozenset({KEY, OTHER})),
        Notices(look=True),
    ]


def test_a_swap_lost_to_another_bridge_keeps_what_was_noticed(publisher: Publisher, runs: Runs) -> None:
    publisher.notify(TOPIC, KEY)
    once(publisher)
    publisher.notify(TOPIC, OTHER)
    runs.answer = refused
    once(publisher)
    once(publisher)
    assert runs.told[1:] == [Notices(frozenset({OTHER}))] * 2


@pytest.mark.parametrize("failure", [unknown, away])
def test_after_any_other_failure_all_is_listed(
    publisher: Publisher, runs: Runs, failure: Callable[[], RunResult]
) -> None:
    publisher.notify(TOPIC, KEY)
    once(publisher)
    publisher.notify(TOPIC, OTHER)
    runs.answer = failure
    once(publisher)
    once(publisher)
    assert runs.told[-1].whole


@pytest.mark.parametrize(("failure", "outcome"), [(refused, "raced"), (unknown, "failed"), (away, "failed")])
def test_only_a_swap_that_another_bridge_won_is_nothing_to_warn_of(
    publisher: Publisher, runs: Runs, failure: Callable[[], RunResult], outcome: str
) -> None:
    """A catalog that answers reads and refuses commits was no warning at all; each is told once, not at each try."""
    said: list[tuple[str, str]] = []

    def told(level: str) -> Callable[..., None]:
        return lambda event, **_: said.append((level, event))

    publisher.log = SimpleNamespace(info=told("info"), warning=told("warning"))
    before = publisher.metrics.publishes.labels(outcome)._value.get()
    runs.answer = failure
    for _ in range(3):
        publisher.notify(TOPIC)
        once(publisher)
    assert publisher.metrics.publishes.labels(outcome)._value.get() == before + 3
    assert said == [("info", "planning again")] * 3 if outcome == "raced" else [("warning", "publishing failed")]


def test_all_is_listed_again_in_time(publisher: Publisher, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher.notify(TOPIC, KEY)
    once(publisher)
    now = time.monotonic()
    runs.answer = partial
    monkeypatch.setattr(time, "monotonic", lambda: now + WHOLE_LISTING_SECONDS - 1)
    once(publisher)
    monkeypatch.setattr(time, "monotonic", lambda: now + WHOLE_LISTING_SECONDS + 1)
    once(publisher)
    assert [told.whole for told in runs.told] == [True, False, True]


def test_a_history_that_is_not_read_yet_is_gone_on_with(publisher: Publisher, runs: Runs) -> None:
    runs.answer = partial
    publisher.notify(TOPIC, KEY)
    once(publisher)
    due = publisher._topics[TOPIC].due - time.monotonic()
    assert 0 < due <= 0.3
    once(publisher)
    assert [told.whole for told in runs.told] == [True, True]


def test_more_notices_than_are_kept_make_a_whole_listing(
    publisher: Publisher, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.notify(TOPIC)
    once(publisher)
    monkeypatch.setattr(publisher_module, "PUBLISH_QUEUE_MAX", 1)
    publisher.notify(TOPIC, KEY)
    publisher.notify(TOPIC, OTHER)
    once(publisher)
    assert runs.told[-1] == Notices(frozenset({KEY}), whole=True)


def test_an_idle_table_runs_at_once_and_a_busy_one_once_an_interval(started: Publisher, runs: Runs) -> None:
    asked = time.monotonic()
    for number in range(40):
        started.notify(TOPIC, IndexKey(topic_id=TOPIC, partition=0, last=number, base=number, segment_id=b"s" * 16))
        time.sleep(0.02)
    eventually(lambda: sum(len(told.keys) for told in runs.told) == 40)
    assert runs.at[0] - asked < 0.25
    gaps = [after - before for before, after in zip(runs.at, runs.at[1:], strict=False)]
    assert 2 <= len(gaps) <= 5
    assert min(gaps) > 0.25


def test_the_scheduler_outlives_whatever_is_raised(
    publisher: Publisher, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_due, raised = Publisher._start_due, [ValueError("unforeseen"), MemoryError()]

    def start(self: Publisher, now: float) -> float:
        if raised:
            raise raised.pop()
        return start_due(self, now)

    monkeypatch.setattr(Publisher, "_start_due", start)
    publisher.start()
    try:
        publisher.notify(TOPIC, KEY)
        eventually(lambda: bool(runs.told))
        assert not raised
        assert publisher._scheduler is not None
        assert publisher._scheduler.is_alive()
    finally:
        publisher.stop()
