"""The commit on a real REST catalog behind a proxy that loses and repeats: nothing is lost, nothing lands twice.

No broker: the commit path alone, hundreds of faults a minute. The whole bridge behind the same proxy is in
test_e2e_rest_faults.py.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from iceberg_catalog.commit.commit import Change, Outcome, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.tables.tables import ensure_table
from tests.support.fault_proxy import LANDED, LATE, NOT_LANDED, REPEATED, Fault, FaultProxy, fault_proxy
from tests.support.token_gate import CLIENT_ID, CLIENT_SECRET, TokenGate
from tests.worlds.catalog_support import OWNER, STATE, Place
from tierberg.stack.servers.rest_catalog import RestCatalogServer

# The first use of the catalog fetches its jars.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1000)]

#: Longer than an answer takes on a busy machine, for one that is late counts as lost.
TIMEOUTS = Timeouts(2000, 3000)
ATTEMPTS_MAX = 30
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    started = RestCatalogServer(tmp_path_factory.mktemp("rest"))
    started.start()
    # Java's first table takes seconds: not within the time-outs of the tests.
    catalog = open_catalog(CatalogSettings("lake", started.client_properties()))
    ensure_table(catalog, OWNER, "raw", data_path="file:///nowhere")
    catalog.close()
    yield started
    started.stop()


@pytest.fixture
def proxy(server: RestCatalogServer) -> Iterator[FaultProxy]:
    with fault_proxy(server.port) as running:
        yield running


def connect(proxy: FaultProxy) -> Catalog:
    return open_catalog(CatalogSettings("lake", {"type": "rest", "uri": proxy.uri}, TIMEOUTS))


@pytest.fixture
def place(proxy: FaultProxy, tmp_path: Path) -> Place:
    """A table of its own for each test; its faults begin when it exists."""
    catalog = connect(proxy)
    data = tmp_path / "data"
    owner = replace(OWNER, topic=f"orders-{next(NUMBERS)}")
    place = Place(catalog, ensure_table(catalog, owner, "raw", data_path=data.as_uri()), data)
    first = publish(place, place.write(0, 9))
    assert [outcome.kind for outcome in first] == ["committed"]
    proxy.commits = 0
    return place


def publish(place: Place, data: DataFile, removed: tuple[str, ...] = ()) -> list[Outcome]:
    """What the publisher does: head, plan, commit, and again from the head until the plan is empty."""
    outcomes: list[Outcome] = []
    live = LiveFiles()
    for attempt in range(ATTEMPTS_MAX):
        head = live.read(place.load())
        paths = {file.path for file in head.files}
        gone = tuple(path for path in removed if path in paths)
        if data.file_path in paths and not gone:
            return outcomes
        change = Change(append=() if data.file_path in paths else (data,), delete=gone)
        name = f"{Path(data.file_path).stem}-{attempt}"
        outcomes.append(commit(place.catalog, head, change, STATE, commit_id=name, as_of_ms=attempt))
    raise AssertionError(f"no end after {ATTEMPTS_MAX} attempts: {[outcome.error for outcome in outcomes]}")


def check(place: Place, expected: list[int], commits: int) -> None:
    """Rows once each, in the head and in its summary; every kept snapshot can be read; `commits` landed in all."""
    assert place.offsets() == expected
    table = place.load()
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.additional_properties["total-records"] == str(len(expected))
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    landed = {snapshot.summary["tierberg.commit-id"] for snapshot in table.metadata.snapshots if snapshot.summary}
    assert len(landed) == commits


@pytest.mark.parametrize("fault", LANDED, ids=lambda fault: fault.name)
def test_a_commit_whose_reply_is_lost_is_recognised(place: Place, proxy: FaultProxy, fault: Fault) -> None:
    proxy.faults = deque([fault])
    outcomes = publish(place, place.write(10, 19))
    assert proxy.hit == [fault.name]
    assert [(outcome.kind, outcome.error is not None) for outcome in outcomes] == [("committed", True)]
    assert proxy.commits == 1
    check(place, list(range(20)), 2)


@pytest.mark.parametrize("fault", NOT_LANDED, ids=lambda fault: fault.name)
def test_a_commit_that_was_lost_is_planned_again(place: Place, proxy: FaultProxy, fault: Fault) -> None:
    proxy.faults = deque([fault])
    outcomes = publish(place, place.write(10, 19))
    assert [outcome.kind for outcome in outcomes] == ["unknown", "committed"]
    check(place, list(range(20)), 2)


def test_a_repeated_request_lands_once_and_is_recognised_by_its_refusal(place: Place, proxy: FaultProxy) -> None:
    """PyIceberg's own path deletes the new head's manifest list here."""
    proxy.faults = deque([REPEATED])
    outcomes = publish(place, place.write(10, 19))
    assert [(outcome.kind, type(outcome.error).__name__) for outcome in outcomes] == [
        ("committed", "CommitFailedException")
    ]
    check(place, list(range(20)), 2)


def test_a_late_request_that_finds_a_new_head_is_refused(place: Place, proxy: FaultProxy) -> None:
    proxy.faults = deque([LATE])
    outcomes = publish(place, place.write(10, 19))
    assert [outcome.kind for outcome in outcomes] == ["unknown", "committed"]
    assert proxy.deliver_held() == [409]
    check(place, list(range(20)), 2)


def test_a_late_request_that_lands_first_makes_the_next_one_fail(place: Place, proxy: FaultProxy) -> None:
    """It lands between the next run's load and its commit."""
    data = place.write(10, 19)
    proxy.faults = deque([LATE])
    head = LiveFiles().read(place.load())
    change = Change(append=(data,))
    assert commit(place.catalog, head, change, STATE, commit_id="one", as_of_ms=0).kind == "unknown"
    assert proxy.deliver_held() == [200]
    assert commit(place.catalog, head, change, STATE, commit_id="two", as_of_ms=0).kind == "conflict"
    assert publish(place, data) == []
    check(place, list(range(20)), 2)


def test_removals_meet_the_same_faults(place: Place, proxy: FaultProxy) -> None:
    (first,) = (file.path for file in LiveFiles().read(place.load()).files)
    proxy.faults = deque([*NOT_LANDED[:3], LANDED[0]])
    publish(place, place.write(10, 19), removed=(first,))
    check(place, list(range(10, 20)), 2)


def test_every_fault_after_every_other(place: Place, proxy: FaultProxy) -> None:
    """One table through all faults in a row, with quick ones between; the head is never lost."""
    quick = [fault for fault in (*LANDED, *NOT_LANDED, REPEATED) if fault.answer != "hang"]
    files = [place.write(first, first + 1) for first in range(10, 10 + 2 * len(quick), 2)]
    proxy.faults = deque(quick)
    for data in files:
        publish(place, data)
    assert proxy.hit == [fault.name for fault in quick]
    assert place.offsets() == list(range(10 + 2 * len(quick)))
    for snapshot in place.load().metadata.snapshots:
        place.load().scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def test_eight_writers_in_a_storm_of_conflicts_and_faults(place: Place, proxy: FaultProxy) -> None:
    writers, each = 8, 3
    files = [[place.write(10 + writer * each + number, 10 + writer * each + number) for number in range(each)]
             for writer in range(writers)]  # fmt: skip
    quick = [fault for fault in (*LANDED, *NOT_LANDED, REPEATED) if fault.answer != "hang"]
    proxy.faults = deque(quick)

    def write(own: list[DataFile]) -> int:
        mine = Place(connect(proxy), place.table, place.data)
        return sum(outcome.kind != "committed" for data in own for outcome in publish(mine, data))

    with ThreadPoolExecutor(writers) as pool:
        failed = sum(pool.map(write, files))
    assert failed > len(quick) // 2
    assert place.offsets() == list(range(10 + writers * each))


OAUTH2 = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}


@pytest.mark.parametrize("flow", ["auth", "credential"])
def test_tokens_that_end_between_commits(
    server: RestCatalogServer, proxy: FaultProxy, tmp_path: Path, flow: str
) -> None:
    """PyIceberg's OAuth2 manager fetches a new one in time; with `credential` it does after a refusal."""
    proxy.gate = TokenGate(seconds=1.0)
    tokens = f"{proxy.uri}{TokenGate.path}"
    if flow == "auth":
        how: dict[str, Any] = {"auth": {"type": "oauth2", "oauth2": {**OAUTH2, "token_url": tokens}}}
    else:
        how = {"credential": ":".join(OAUTH2.values()), "oauth2-server-uri": tokens}
    catalog = open_catalog(CatalogSettings("lake", {"type": "rest", "uri": proxy.uri, **how}, TIMEOUTS))
    data = tmp_path / "data"
    owner = replace(OWNER, topic=f"guarded-{next(NUMBERS)}")
    place = Place(catalog, ensure_table(catalog, owner, "raw", data_path=data.as_uri()), data)
    for number in range(3):
        assert all(outcome.kind == "committed" for outcome in publish(place, place.write(number, number)))
        time.sleep(1.2)
    assert place.offsets() == [0, 1, 2]
    assert len(proxy.gate.tokens) >= 3
    assert (proxy.gate.refused > 0) == (flow == "credential")
