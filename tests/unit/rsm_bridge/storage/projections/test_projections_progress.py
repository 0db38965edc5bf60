"""The progress object of a projection: what is written is read, and damage counts as nothing read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.plan.hold import ReadTo
from iceberg_catalog.tables.names import Owner
from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import PROJECTION_PROGRESS_FRESH_SECONDS, PROJECTION_PROGRESS_TEXT_CHARS_MAX
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections import progress as projection_progress
from rsm_bridge.storage.projections.hold import ProjectionReaders, WaitingProjection
from rsm_bridge.storage.projections.progress import (
    ProjectionFailure,
    ProjectionLoss,
    ProjectionProgress,
    ProjectionSize,
    decode_progress,
    progress_key,
    read_one,
    write_progress,
)
from tests.support.projection_progress import put_progress

TOPIC = bytes(range(16))
OWNER = Owner("test", "orders", TOPIC)
WHOLE = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
PROGRESS = st.builds(
    ProjectionProgress,
    topic_id=st.binary(min_size=16, max_size=16),
    catalog=st.text(),
    table=st.text(),
    read=st.dictionaries(st.integers(0, 2**31 - 1), st.builds(ReadTo, COUNT, COUNT, COUNT)),
    snapshot_id=st.none() | WHOLE,
    succeeded_ms=st.none() | WHOLE,
    caught_up_ms=st.none() | WHOLE,
    size=st.none() | st.builds(ProjectionSize, COUNT, COUNT, COUNT),
    failure=st.none() | st.builds(ProjectionFailure, WHOLE, st.text(max_size=2000), st.text(max_size=2000)),
    lost=st.dictionaries(st.integers(0, 2**31 - 1), st.builds(ProjectionLoss, COUNT, COUNT, WHOLE)),
    failed_chores=st.dictionaries(st.text(), st.builds(ProjectionFailure, WHOLE, st.text(), st.text())),
    dead_letters=COUNT,
)
ONE = ProjectionProgress(
    topic_id=TOPIC,
    catalog="tierberg",
    table="kafka.orders_by_day",
    read={0: ReadTo(5), 1: ReadTo(7, 1, 2)},
    snapshot_id=17,
    succeeded_ms=18,
    caught_up_ms=19,
)


def make_store(folder: Path) -> ObjectStore:
    return open_store(load_settings(None, {"data_dir": folder}))


def with_projections(folder: Path, *projections: dict[str, Any]) -> Settings:
    topics = [{"pattern": "orders", "copies": list(projections)}]
    return load_settings(None, {"data_dir": folder, "topics": topics})


@given(PROGRESS)
def test_what_is_written_is_read(progress: ProjectionProgress) -> None:
    assert decode_progress(progress.encode(), progress.key) == progress


@given(PROGRESS, st.data())
def test_one_changed_byte_is_the_same_or_damage(progress: ProjectionProgress, data: st.DataObject) -> None:
    whole = progress.encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    try:
        assert decode_progress(changed, progress.key) == progress
    except BridgeError as error:
        assert error.kind in {"corrupt_object", "unsupported_version"}  # noqa: PT017 - either is right


def test_one_changed_digit_is_damage() -> None:
    """Rows that were not read would go."""
    changed = ONE.encode().replace(b'"0":[5,', b'"0":[9,')
    assert changed != ONE.encode()
    with pytest.raises(BridgeError, match="checksum"):
        decode_progress(changed, ONE.key)


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(BridgeError) as caught:
        decode_progress(data, ONE.key)
    assert caught.value.kind == "corrupt_object"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.sampled_from(sorted(json.loads(ONE.encode())["progress"])), JSON)
def test_a_field_of_another_kind_is_damage_or_harmless(name: str, value: object) -> None:
    """As a job with a mistake may write it: the checksum is right."""
    document = json.loads(ONE.encode())["progress"]
    document[name] = value
    body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    data = json.dumps({"crc32c": crc32c.crc32c(body), "progress": document}).encode()
    try:
        found = decode_progress(data, ONE.key)
    except BridgeError:
        return
    assert all(min(item.next, item.rewinds, item.repairs) >= 0 for item in found.read.values())


def test_the_progress_of_another_projection_is_damage() -> None:
    for other in (replace(ONE, table="kafka.other"), replace(ONE, catalog="b"), replace(ONE, topic_id=bytes(16))):
        with pytest.raises(BridgeError, match="another projection"):
            decode_progress(other.encode(), ONE.key)
    assert progress_key(TOPIC, "a", "b.c") != progress_key(TOPIC, "a.b", "c")


def test_a_newer_version_is_said_to_be_one() -> None:
    document = {**json.loads(ONE.encode())["progress"], "version": 2}
    body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(BridgeError) as caught:
        decode_progress(json.dumps({"crc32c": crc32c.crc32c(body), "progress": document}).encode(), ONE.key)
    assert caught.value.kind == "unsupported_version"


def test_it_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = make_store(tmp_path)
    put_progress(store, ONE)
    monkeypatch.setattr(projection_progress, "PROJECTION_PROGRESS_BYTES_MAX", len(ONE.encode()) - 1)
    with pytest.raises(BridgeError, match=r"has .* bytes"):
        ONE.encode()
    with pytest.raises(BridgeError, match="more than"):
        read_one(store, ONE.key)


def test_long_texts_are_cut() -> None:
    failed = replace(ONE, failure=ProjectionFailure(1, "x" * 10_000, "y" * 10_000))
    found = decode_progress(failed.encode(), ONE.key).failure
    assert found is not None
    assert (len(found.message), len(found.advice)) == (PROJECTION_PROGRESS_TEXT_CHARS_MAX,) * 2


def test_the_last_one_written_is_there(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert read_one(store, ONE.key) is None
    later = replace(ONE, read={0: ReadTo(9)})
    other = replace(ONE, table="kafka.other")
    for progress in (ONE, later, other):
        put_progress(store, progress)
    assert [read_one(store, progress.key) for progress in (ONE, other)] == [later, other]
    assert read_one(store, replace(ONE, topic_id=bytes(16)).key) is None


@pytest.mark.parametrize("there", [False, True])
def test_what_another_job_writes_meanwhile_stays(tmp_path: Path, there: bool) -> None:
    store = make_store(tmp_path)
    if there:
        put_progress(store, ONE)
    losses = {number: ProjectionLoss(1, number, 5) for number in range(3)}

    def lose(number: int) -> Callable[[ProjectionProgress], ProjectionProgress]:
        def change(before: ProjectionProgress) -> ProjectionProgress:
            if number and number - 1 not in before.lost:
                write_progress(store, ONE, lose(number - 1))
            return replace(before, lost={**before.lost, number: losses[number]})

        return change

    write_progress(store, ONE, lose(2))
    assert read_one(store, ONE.key) == replace(ONE, lost=losses)


def test_a_damaged_object_is_written_anew_and_nothing_is_written_for_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store.put_if_absent(ONE.key, b"{")
    write_progress(store, ONE, lambda before: replace(before, snapshot_id=3))
    assert read_one(store, ONE.key) == replace(ONE, snapshot_id=3)
    version = store.read(ONE.key).version
    write_progress(store, ONE, lambda before: before)
    assert store.read(ONE.key).version == version


def test_one_damaged_object_does_not_hide_the_others(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    put_progress(store, ONE)
    broken = progress_key(TOPIC, "tierberg", "kafka.broken")
    assert store.put_if_absent(broken, b"{")
    with pytest.raises(BridgeError) as caught:
        read_one(store, broken)
    assert caught.value.kind == "corrupt_object"
    assert read_one(store, ONE.key) == ONE


def test_declared_projections_wait_with_what_they_have_read(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    settings = with_projections(
        tmp_path,
        {"table": "{topic}_by_day"},
        {"table": "lake.orders", "hold": "2h", "catalog": {"name": "other", "properties": {"type": "rest"}}},
        {"table": "at_once", "hold": "0s"},
    )
    put_progress(store, ONE)
    put_progress(store, ProjectionProgress(topic_id=TOPIC, catalog="other", table="lake.orders", read={3: ReadTo(1)}))
    assert ProjectionReaders(settings, store).waiting(OWNER, "orders") == [
        WaitingProjection("kafka.orders_by_day", 7 * 86_400_000, ONE.read),
        WaitingProjection("lake.orders", 7_200_000, {3: ReadTo(1)}),
    ]


def test_a_projection_that_never_ran_or_whose_progress_is_damaged_has_read_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    settings = with_projections(tmp_path, {"table": "{topic}_by_day"}, {"table": "broken"})
    assert store.put_if_absent(progress_key(TOPIC, "tierberg", "kafka.broken"), b"\x00")
    assert [projection.read for projection in ProjectionReaders(settings, store).waiting(OWNER, "orders")] == [{}, {}]


def test_what_was_read_of_progress_serves_for_some_seconds(tmp_path: Path) -> None:
    store, now = make_store(tmp_path), [0.0]
    readers = ProjectionReaders(with_projections(tmp_path, {"table": "{topic}_by_day"}), store, lambda: now[0])
    assert readers.waiting(OWNER, "orders")[0].read == {}
    put_progress(store, ONE)
    assert readers.waiting(OWNER, "orders")[0].read == {}
    now[0] = PROJECTION_PROGRESS_FRESH_SECONDS
    assert readers.waiting(OWNER, "orders")[0].read == ONE.read


class NoStore:
    """Whoever asks it fails."""

    def __getattr__(self, name: str) -> Any:
        raise StoreError(name)


def test_a_topic_without_projections_asks_the_store_nothing(tmp_path: Path) -> None:
    settings = with_projections(tmp_path, {"table": "at_once", "hold": "0s"})
    for topic in ("orders", "others"):
        readers = ProjectionReaders(settings, NoStore())  # type: ignore[arg-type]
        assert readers.waiting(Owner("test", topic, TOPIC), topic) == []
    asking = ProjectionReaders(with_projections(tmp_path, {"table": "x"}), NoStore())  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        asking.waiting(OWNER, "orders")
