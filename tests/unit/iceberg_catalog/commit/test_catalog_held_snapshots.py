"""What tags and branches hold, and that commits and maintenance leave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate

from iceberg_catalog import failpoints
from iceberg_catalog.commit import commit as commit_module
from iceberg_catalog.commit.commit import Change, commit, recorded_retention
from iceberg_catalog.commit.expire import expire
from iceberg_catalog.commit.foreign import foreign_commits
from iceberg_catalog.commit.head import LiveFiles, recorded_state
from iceberg_catalog.commit.named_snapshots import held_snapshots
from iceberg_catalog.commit.retained import fixed_snapshots, kept_since, last_as_head
from iceberg_catalog.limits import SNAPSHOTS_HELD_MAX, SNAPSHOTS_KEPT_MAX
from tests.worlds.catalog_support import STATE, Place, make_place, make_rows

#: Snapshot 7 is made at 7 * TICK_MS.
TICK_MS = 1000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def branch(snapshot_id: int, **retention: int) -> SnapshotRef:
    named = {"snapshot-id": snapshot_id, "type": "branch"}
    return SnapshotRef.model_validate(named | {name.replace("_", "-"): value for name, value in retention.items()})


def tag(snapshot_id: int) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "tag"})


def metadata(
    place: Place, parents: Mapping[int, int | None], now: int | None = None, **refs: SnapshotRef
) -> TableMetadata:
    """Metadata with these snapshots; it was last changed with the newest one, or at `now` ticks."""
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": parent,
                "sequence-number": number,
                "timestamp-ms": number * TICK_MS,
                "manifest-list": f"file:///{number}.avro",
            }
        )
        for number, parent in parents.items()
    ]
    last_ms = (max(parents) if now is None else now) * TICK_MS
    head = refs[MAIN_BRANCH].snapshot_id if MAIN_BRANCH in refs else None
    changed = {"snapshots": snapshots, "refs": refs, "last_updated_ms": last_ms, "current_snapshot_id": head}
    return place.table.metadata.model_copy(update=changed)


def line(first: int, last: int) -> dict[int, int | None]:
    """Snapshots [first, last], each the parent of the next."""
    return {number: number - 1 if number > first else None for number in range(first, last + 1)}


def test_what_tags_and_branches_name_is_held(place: Place) -> None:
    found = metadata(place, line(1, 9), main=branch(9), old=tag(2), other=branch(4))
    assert held_snapshots(found) == {9: "main", 2: "old", 4: "other"}
    assert held_snapshots(metadata(place, line(1, 3))) == {}


def test_a_branch_holds_its_own_history_whatever_its_retention(place: Place) -> None:
    parents = line(1, 9) | {10: 5, 11: 10, 12: 11}
    for audit in (branch(12), branch(12, min_snapshots_to_keep=1, max_snapshot_age_ms=1)):
        assert held_snapshots(metadata(place, parents, main=branch(9), audit=audit)) == {
            9: "main",
            **dict.fromkeys((10, 11, 12), "audit"),
        }


def test_branches_that_fork_from_each_other_hold_what_they_share(place: Place) -> None:
    parents = line(1, 4) | {5: 2, 6: 5, 7: 6, 8: 6}
    found = metadata(place, parents, main=branch(4), one=branch(7), two=branch(8))
    assert held_snapshots(found) == {4: "main", 5: "one", 6: "one", 7: "one", 8: "two"}
    # Dropped, one leaves what the other has too.
    assert held_snapshots(metadata(place, parents, main=branch(4), two=branch(8))).keys() == {4, 5, 6, 8}


def test_a_branch_of_no_history_in_common_is_held_whole(place: Place) -> None:
    found = metadata(place, line(1, 3) | line(4, 6), main=branch(3), audit=branch(6))
    assert held_snapshots(found).keys() == {3, 4, 5, 6}
    assert held_snapshots(metadata(place, line(1, 3), audit=branch(3))).keys() == {1, 2, 3}


def test_retention_by_number_reaches_into_the_history_of_main(place: Place) -> None:
    parents = line(1, 9) | {10: 5, 11: 10}
    audit = branch(11, min_snapshots_to_keep=4)
    assert held_snapshots(metadata(place, parents, main=branch(9), audit=audit)).keys() == {9, 11, 10, 5, 4}
    main = branch(9, min_snapshots_to_keep=3)
    assert held_snapshots(metadata(place, parents, main=main)) == dict.fromkeys((9, 8, 7), "main")


def test_retention_by_age_goes_by_the_tables_last_change(place: Place) -> None:
    main = branch(9, max_snapshot_age_ms=3 * TICK_MS)
    assert held_snapshots(metadata(place, line(1, 9), main=main)).keys() == {9, 8, 7, 6}
    assert held_snapshots(metadata(place, line(1, 9), now=11, main=main)).keys() == {9, 8}
    assert held_snapshots(metadata(place, line(1, 9), now=99, main=main)).keys() == {9}
    both = branch(9, max_snapshot_age_ms=3 * TICK_MS, min_snapshots_to_keep=2)
    assert held_snapshots(metadata(place, line(1, 9), main=both)).keys() == {9, 8, 7, 6}
    assert held_snapshots(metadata(place, line(1, 9), now=99, main=both)).keys() == {9, 8}


@pytest.mark.parametrize(
    "retention", [{"min_snapshots_to_keep": 10 * SNAPSHOTS_HELD_MAX}, {"max_snapshot_age_ms": 2**62}]
)
def test_retention_is_bounded_and_a_branchs_own_history_is_not(place: Place, retention: dict[str, int]) -> None:
    last = SNAPSHOTS_HELD_MAX + 7
    assert held_snapshots(metadata(place, line(1, last), main=branch(last, **retention))).keys() == set(
        range(8, last + 1)
    )
    other = metadata(place, line(1, last), audit=branch(last, **retention))
    assert held_snapshots(other).keys() == set(range(1, last + 1))


def test_parents_that_go_in_a_circle_end(place: Place) -> None:
    parents = {1: 3, 2: 1, 3: 2, 4: 3, 5: 6, 6: 5}
    damaged = metadata(
        place, parents, audit=branch(6, min_snapshots_to_keep=9), main=branch(4, min_snapshots_to_keep=9)
    )
    assert held_snapshots(damaged).keys() == {1, 2, 3, 4, 5, 6}
    place.table.metadata = damaged
    head = place.table.current_snapshot()
    assert head is not None
    assert recorded_state(place.table, head) is None
    assert foreign_commits(place.table) is None
    assert fixed_snapshots(place.table) == {1, 2, 3, 4, 5, 6}
    assert last_as_head(place.table).keys() == {1, 2, 3, 4, 5, 6}
    assert kept_since(place.table) is not None


def publish(place: Place, number: int) -> int:
    head = LiveFiles().read(place.load())
    change = Change(append=(place.write(number, number),))
    outcome = commit(place.catalog, head, change, STATE, commit_id="c", as_of_ms=17)
    assert outcome.kind == "committed"
    return outcome.snapshot_id


def kept(place: Place) -> set[int]:
    return {item.snapshot_id for item in place.load().metadata.snapshots}


def keep_of_main(place: Place, **retention: int) -> None:
    main = branch(place.load().metadata.refs[MAIN_BRANCH].snapshot_id, **retention)
    update = SetSnapshotRefUpdate.model_validate({"ref-name": MAIN_BRANCH, **main.model_dump()})
    place.catalog.commit_table(place.load(), (), (update,))


def test_a_branch_of_an_engine_and_the_retention_of_main_outlive_commits_of_ours(place: Place) -> None:
    published = [publish(place, number) for number in range(2)]
    place.load().manage_snapshots().create_branch(published[-1], "audit", min_snapshots_to_keep=2).commit()
    audited = set()
    for number in range(5):
        place.load().append(make_rows(range(1000 + number, 1001 + number), 0, "raw"), branch="audit")
        audited.add(place.load().metadata.refs["audit"].snapshot_id)
    keep_of_main(place, min_snapshots_to_keep=9, max_snapshot_age_ms=1, max_ref_age_ms=2**40)
    asked = place.load().metadata.refs[MAIN_BRANCH]
    audit = place.load().metadata.refs["audit"]
    published += [publish(place, number) for number in range(2, 32)]
    refs = place.load().metadata.refs
    assert refs["audit"] == audit
    assert refs[MAIN_BRANCH] == asked.model_copy(update={"snapshot_id": published[-1]})
    assert audited < kept(place)
    # Those nine, and the newest of what nothing holds.
    assert set(published[-25:]) < kept(place)
    assert published[0] not in kept(place)
    # Who takes the retention off, and the branch away, has the table as others are.
    keep_of_main(place)
    place.load().manage_snapshots().remove_branch("audit").commit()
    published.append(publish(place, 32))
    assert len(kept(place)) == SNAPSHOTS_KEPT_MAX
    assert place.offsets() == list(range(33))


def test_snapshots_of_a_branch_push_none_of_the_tables_out(place: Place) -> None:
    published = [publish(place, number) for number in range(3)]
    place.load().manage_snapshots().create_branch(published[0], "audit").commit()
    for number in range(SNAPSHOTS_KEPT_MAX):
        place.load().append(make_rows(range(1000 + number, 1001 + number), 0, "raw"), branch="audit")
    published.append(publish(place, 3))
    assert set(published) < kept(place)


def test_a_retention_that_comes_during_a_commit_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(place, 0)
    left = [lambda: keep_of_main(place, min_snapshots_to_keep=30)]
    monkeypatch.setattr(failpoints, "hit", lambda point, *_: left.pop()() if point == "before-swap" and left else None)
    publish(place, 1)
    assert place.load().metadata.refs[MAIN_BRANCH].min_snapshots_to_keep == 30


def test_without_a_look_just_before_the_retention_of_the_head_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(place, 0)
    keep_of_main(place, min_snapshots_to_keep=30)
    monkeypatch.setattr(commit_module, "metadata_now", lambda *_: None)
    publish(place, 1)
    assert place.load().metadata.refs[MAIN_BRANCH].min_snapshots_to_keep == 30


def test_what_a_branch_holds_is_not_expired_by_hand_and_the_rest_is(place: Place) -> None:
    published = [publish(place, number) for number in range(6)]
    place.load().manage_snapshots().create_branch(published[2], "audit", min_snapshots_to_keep=2).commit()
    head = LiveFiles().read(place.load())
    assert fixed_snapshots(head.table) == {published[5], published[2], published[1]}
    assert expire(place.catalog, head, published[:2]) is None
    assert set(published) == kept(place)
    with pytest.raises(CommitFailedException, match="that audit holds by now"):
        place.load().maintenance.expire_snapshots().by_id(published[1]).commit()
    assert expire(place.catalog, head, [published[0], published[3]]) is not None
    assert kept(place) == {published[number] for number in (1, 2, 4, 5)}


def test_what_the_rule_of_rows_is_ends_on_a_circle(place: Place) -> None:
    publish(place, 0)
    head = LiveFiles().read(place.load())
    head.table.metadata = metadata(place, {1: 2, 2: 1}, main=branch(2))
    assert recorded_retention(head) is None
