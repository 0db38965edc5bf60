"""Changes that come after later ones of their key, in runs of their own, and leave something out.

What a change does not say is what the change before it said, in the order of the rule: of the run's own, or the row's,
whichever is later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run import write
from rsm_bridge.tables.maintain.requeue_topics import requeue
from tests.projections.projection_support import START_MS, ProjectionWorld, Sent, projection_world, sent
from tests.projections.test_projections_cdc import event
from tests.projections.test_projections_races import die
from tests.projections.test_projections_replay import letters, replay
from tests.support.eventually import eventually

PLACEHOLDER = "__debezium_unavailable_value"
RULE = {"mode": "upsert", "key": ["id"], "envelope": "debezium"}
ORDERS: dict[str, dict[str, Any]] = {
    "source": {"key_order": "source", "source_order": ["lsn"], "select": ["*", "_event.source.lsn AS lsn"]},
    "timestamp": {"key_order": "timestamp", "select": ["id", "name", "body", "_kafka_timestamp"]},
}
HIDDEN = "hide"
Row = tuple[str | None, str | None]


@dataclass(frozen=True)
class Change:
    """Of one key. `body` None: it is left out; `name` None: the row is deleted."""

    at: int
    key: int
    name: str | None
    body: str | None

    def sent(self) -> Sent:
        if self.name is None:
            return sent({"id": self.key}, event("d", {"id": self.key}, None, self.at))
        after = {"id": self.key, "name": self.name, "body": PLACEHOLDER if self.body is None else self.body}
        return sent({"id": self.key}, event("u", None, after, self.at))


@dataclass
class Table:
    """What the projection must be: by key the place of its row, the row, and whether it is marked as deleted."""

    soft: bool
    where: bool
    rows: dict[int, tuple[int, Row, bool]] = field(default_factory=dict)

    def run(self, changes: list[Change]) -> None:
        """What a run reads. Of a key whose row is later than the last of its changes nothing changes."""
        for key in {change.key for change in changes}:
            begun = self.rows.get(key)
            mine = sorted((change for change in changes if change.key == key), key=lambda change: change.at)
            for change in mine if begun is None or mine[-1].at > begun[0] else []:
                if begun is None or change.at > begun[0]:
                    self._apply(change)

    def _apply(self, change: Change) -> None:
        before = self.rows.get(change.key)
        if change.name is None and self.soft:
            if before is not None:
                self.rows[change.key] = (change.at, before[1], True)
        elif change.name is None or (self.where and change.name == HIDDEN):
            self.rows.pop(change.key, None)
        else:
            old = None if before is None else before[1][1]
            self.rows[change.key] = (change.at, (change.name, old if change.body is None else change.body), False)


def read(world: ProjectionWorld) -> dict[int, tuple[Row, bool]]:
    found = world.rows()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: ((row["name"], row["body"]), bool(row.get("__deleted"))) for row in found}


@pytest.mark.parametrize(
    ("order", "soft", "where", "few"),
    [
        ("source", False, False, True),
        ("source", True, True, False),
        ("timestamp", True, True, True),
        ("timestamp", False, False, False),
    ],
)
def test_a_row_keeps_what_the_last_change_before_said(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, soft: bool, where: bool, few: bool
) -> None:
    random = Random(f"{order} {soft} {few}")
    if not few:
        monkeypatch.setattr(write, "FEW_WORKED_OUT_BYTES_MAX", -1)
    rule = {**RULE, **ORDERS[order], "soft_deletes": soft, **({"where": f"name <> '{HIDDEN}'"} if where else {})}
    table = Table(soft, where)
    with projection_world(spark, tmp_path, rule) as world:
        places = list(range(1, 260))
        random.shuffle(places)
        for _ in range(5):
            changes = []
            for at in (places.pop() for _ in range(40)):
                name = random.choice([HIDDEN, None, *(f"n{at}" for _ in range(6))])
                changes.append(Change(at, random.randrange(8), name, random.choice([None, None, f"b{at}"])))
            # Of a delete it says nothing of `name`, so that the key alone tells the row.
            for partition in (0, 1):
                mine = changes[partition::2]
                world.send([one.sent() for one in mine], partition, times=[START_MS + one.at * 1000 for one in mine])
            world.run()
            table.run(changes)
            assert read(world) == {key: (row, gone) for key, (_, row, gone) in table.rows.items()}


@pytest.mark.parametrize(
    ("order", "how"), [(None, "letter"), ("source", "letter"), (None, "requeue"), ("timestamp", "requeue")]
)
def test_what_comes_to_be_known_later_is_kept_by_the_changes_behind_it(
    spark: Any, tmp_path: Path, order: str | None, how: str
) -> None:
    """A dead letter that is replayed, or a segment that gets its rows late: the row's own change is made anew."""
    given = ORDERS[order] if order else {"select": ["*"]}
    checked = "60 div (length(name) - 1) AS share"
    select = given["select"]
    rule = {**RULE, **given, "select": [*select, checked] if how == "letter" else select}
    with projection_world(spark, tmp_path, rule) as world:

        def send(at: int, name: str, body: str | None, *, shown: bool = True) -> None:
            change = Change(at, 1, name, body)
            world.send([change.sent()], shown=shown, times=[START_MS + at * 1000])

        send(1, "first", "old")
        send(2, "b", "late", shown=how == "letter")
        send(3, "third", None)
        send(4, "fourth", None)
        world.run()
        assert read(world) == {1: (("fourth", "old"), False)}
        if how == "letter":
            assert letters(world) == [(0, 1)]
            world.change({**rule, "select": [*select, "try_divide(60, length(name) - 1) AS share2"]})
            assert replay(world) == 1
        else:
            requeue(world.backend, None, dry_run=False, say=print)
            world.run()
        assert read(world) == {1: (("fourth", "late"), False)}
        assert not letters(world)


def update(key: int, at: int, body: str | None, name: str = "n") -> Sent:
    return Change(at, key, name, body).sent()


def test_what_comes_late_of_one_key_changes_no_row_of_another(spark: Any, tmp_path: Path) -> None:
    """Of that one what its row keeps may be gone from the topic's table, and cannot be told again."""
    with projection_world(spark, tmp_path, {**RULE, **ORDERS["timestamp"], "hold": "0s"}) as world:

        def send(key: int, at: int, body: str | None, partition: int, *, shown: bool = True) -> Any:
            time = [START_MS + at * 1000]
            return world.send([update(key, at, body)], partition, shown=shown, times=time)

        send(1, 5, "older", 0)
        gone = send(1, 7, "newer", 1)
        send(1, 9, None, 0)
        send(2, 1, "late", 0, shown=False)
        world.run()
        assert read(world) == {1: (("n", "newer"), False)}
        world.shim.delete(gone)
        eventually(lambda: world.state(1).floor == 1)
        requeue(world.backend, None, dry_run=False, say=print)
        world.run()
        assert read(world) == {1: (("n", "newer"), False), 2: (("n", "late"), False)}


def test_a_repair_keeps_what_only_rows_know_that_nothing_was_taken_back_of(spark: Any, tmp_path: Path) -> None:
    """One value is of a record that Kafka has deleted since, another of one before others that came late."""
    with projection_world(spark, tmp_path, {**RULE, "hold": "0s"}) as world:
        gone = world.send([update(1, 1, "kept")])
        world.send([update(1, 2, None)])
        world.send([update(2, 3, "taken back")])
        world.send([update(3, 1, "early")], 1)
        world.send([update(4, 1, "late")], 1, shown=False)
        world.send([update(3, 2, None)], 1)
        world.run()
        world.shim.delete(gone)
        eventually(lambda: world.state(0).floor == 1)
        requeue(world.backend, None, dry_run=False, say=print)
        world.send([update(5, 9, "new leader's")], at=2, epoch=1)
        world.job(repair=True).run()
        bodies = {key: row[1] for key, (row, _) in read(world).items()}
        assert bodies == {1: "kept", 3: "early", 4: "late", 5: "new leader's"}


def test_letters_of_a_run_that_died_are_made_anew_by_the_rule_of_the_next(spark: Any, tmp_path: Path) -> None:
    """Under that one other records have no row."""
    with projection_world(spark, tmp_path, {"select": ["id", "n"]}) as world:
        world.send([sent(0, {"id": 0, "n": 1})])
        world.run()
        world.send([(b"1", b"{"), sent(2, {"id": 2, "n": 0}), sent(3, {"id": 3, "n": 3})])
        job = world.job()
        job.step = lambda step: die() if step == "publish" else None
        with pytest.raises(RepartitionError):
            job.run()
        assert letters(world) == [(0, 1)]
        world.change({"select": ["id", "n", "60 div n AS share"]})
        world.run()
        assert letters(world) == [(0, 1), (0, 2)]
        assert [row["id"] for row in world.rows()] == [0, 3]


@pytest.mark.parametrize("soft", [False, True])
def test_a_row_that_moves_to_a_key_keeps_nothing_of_the_one_before_it(spark: Any, tmp_path: Path, soft: bool) -> None:
    def moves(key: int, to: int, **after: Any) -> Sent:
        before = {"id": key, "name": "n", "body": PLACEHOLDER}
        return sent({"id": to}, event("u", before, {"id": to, "name": "n", "body": PLACEHOLDER, **after}))

    with projection_world(spark, tmp_path, {**RULE, "soft_deletes": soft}) as world:
        world.send([update(1, 1, "of the first"), moves(1, 2), update(3, 1, None), moves(3, 1), moves(2, 4)])
        world.run()
        found = {key: row[1] for key, (row, gone) in read(world).items() if not gone}
        assert found == {1: "of the first" if soft else None, 4: None}
        assert PLACEHOLDER not in [row[1] for row, _ in read(world).values()]


def test_a_delete_says_its_place_in_the_order_by_a_column_of_the_row(spark: Any, tmp_path: Path) -> None:
    rule = {**RULE, "key_order": "source", "source_order": ["version"], "soft_deletes": True}

    def change(op: str, version: int, name: str) -> Sent:
        row = {"id": 1, "version": version, "name": name}
        return sent({"id": 1}, event(op, row if op == "d" else None, None if op == "d" else row))

    with projection_world(spark, tmp_path, rule) as world:
        for records, wanted in (
            ([change("u", 3, "three")], ("three", 3, False)),
            ([change("u", 1, "one"), change("d", 5, "three")], ("three", 5, True)),
            ([change("u", 4, "late")], ("three", 5, True)),
            ([change("u", 6, "six")], ("six", 6, False)),
        ):
            world.send(records)
            world.run()
            (row,) = world.rows()
            assert (row["name"], row["version"], row["__deleted"]) == wanted
