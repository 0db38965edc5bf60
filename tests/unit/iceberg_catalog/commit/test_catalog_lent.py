"""Credentials lent with a table: renewed before a commit when they may end during it, never logged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.vended_credentials import LENT_AT, renewed, stamp
from iceberg_catalog.connect import redaction
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.redaction import HIDDEN, hide, remember_issued
from iceberg_catalog.limits import ISSUED_SECRETS_MAX, LENT_AGE_MS_MAX, LENT_LEFT_MS_MIN
from tests.support.answering_server import answering
from tests.worlds.catalog_support import STATE, Place, make_place

ENDS = "s3.session-token-expires-at-ms"


class Counting:
    """The catalog, and how often the table was loaded from it."""

    def __init__(self, place: Place) -> None:
        self.place, self.loads = place, 0

    def load_table(self, name: Any) -> Any:
        self.loads += 1
        return self.place.catalog.load_table(name)

    def commit_table(self, *args: Any) -> Any:
        return self.place.catalog.commit_table(*args)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def lent(place: Place, age_ms: int = 0, **properties: int) -> Head:
    """A head whose table came with credentials."""
    head = LiveFiles().read(place.load())
    stamp(head.table, [{"s3.secret-access-key": "x"}])
    assert abs(int(head.table.io.properties[LENT_AT]) - time.time() * 1000) < 5000
    head.table.io.properties[LENT_AT] = str(int(head.table.io.properties[LENT_AT]) - age_ms)
    head.table.io.properties |= {name: str(value) for name, value in properties.items()}
    return head


def now_ms() -> int:
    return int(time.time() * 1000)


def test_without_lent_credentials_nothing_is_asked(place: Place) -> None:
    catalog = Counting(place)
    head = LiveFiles().read(place.load())
    stamp(head.table, [{"s3.region": "eu-central-1", "write.metadata.metrics.column._kafka_key": "full"}])
    assert renewed(catalog, head) is head  # type: ignore[arg-type]
    assert catalog.loads == 0


@pytest.mark.parametrize(
    ("age_ms", "left_ms", "loads"),
    [
        (0, None, 0),
        (LENT_AGE_MS_MAX + 1000, None, 1),
        (0, LENT_LEFT_MS_MIN + 5000, 0),
        (0, LENT_LEFT_MS_MIN - 1000, 1),
        (LENT_AGE_MS_MAX + 1000, 10 * LENT_LEFT_MS_MIN, 1),
    ],
)
def test_they_are_renewed_when_old_or_about_to_end(place: Place, age_ms: int, left_ms: int | None, loads: int) -> None:
    catalog = Counting(place)
    head = lent(place, age_ms, **({} if left_ms is None else {ENDS: now_ms() + left_ms}))
    again = renewed(catalog, head)  # type: ignore[arg-type]
    assert catalog.loads == loads
    assert (again.table.io is head.table.io) == (loads == 0)
    assert again.table.metadata == head.table.metadata


def test_a_commit_writes_with_renewed_ones_on_the_head_it_was_planned_on(place: Place) -> None:
    catalog = Counting(place)
    stale = lent(place, LENT_AGE_MS_MAX + 1000)
    other = commit(
        place.catalog, lent(place), Change(append=(place.write(0, 9),)), STATE, commit_id="other", as_of_ms=0
    )
    assert other.kind == "committed"
    change = Change(append=(place.write(10, 19),))
    # Loading the table anew must not move the head under the plan.
    refused = commit(catalog, stale, change, STATE, commit_id="stale", as_of_ms=0)  # type: ignore[arg-type]
    assert refused.kind == "conflict"
    landed = commit(catalog, lent(place, LENT_AGE_MS_MAX + 1000), change, STATE, commit_id="x", as_of_ms=0)  # type: ignore[arg-type]
    assert landed.kind == "committed"
    assert place.offsets() == list(range(20))


def test_those_of_another_table_are_not_used(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    head = lent(place, LENT_AGE_MS_MAX + 1000)
    place.catalog.drop_table(place.table.name())
    again = make_place(tmp_path)
    assert renewed(again.catalog, head) is head


def test_what_a_server_issues_is_hidden_from_then_on(place: Place) -> None:
    config = {"s3.secret-access-key": "lent-hunter2", "s3.session-token": "session-hunter2", "s3.region": "nowhere"}
    metadata = place.table.metadata.model_dump(mode="json", by_alias=True)
    with answering() as server:
        load = {"metadata-location": place.table.metadata_location, "metadata": metadata, "config": config}
        server.answers = lambda request: (
            (200, {"defaults": {}, "overrides": {}}) if "config" in request.path else (200, load)
        )
        catalog = open_catalog(CatalogSettings("r", {"type": "rest", "uri": server.uri, "token": "bearer-hunter2"}))
        table = catalog.load_table(("kafka", "orders"))
        catalog.close()
    assert LENT_AT in table.io.properties
    said = "refused lent-hunter2 and session-hunter2 by Bearer bearer-hunter2 in nowhere"
    assert hide(said) == f"refused {HIDDEN} and {HIDDEN} by Bearer {HIDDEN} in nowhere"


def test_only_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_issued", ())
    for number in range(ISSUED_SECRETS_MAX + 10):
        remember_issued({"token": f"token-number-{number:05d}"})
    assert len(redaction._issued) == ISSUED_SECRETS_MAX
    assert hide("token-number-00009") == "token-number-00009"
    assert hide("token-number-00010") == HIDDEN
