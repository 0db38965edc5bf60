"""Random histories against a dict: inserts, updates, tombstones, schema changes, retention, rows that come late.

Whatever is sent, and whenever copies run and are maintained: the append copy has each record once, the upsert copy the
latest row of each key that was not deleted.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from repartition import chores, maintenance
from repartition.chores import Budget
from rsm_bridge import copy_hold
from rsm_bridge.requeue_command import requeue
from tests.copies.copy_support import TOPIC, CopyWorld, Sent, copy_world, framed
from tests.support.eventually import eventually

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "n", "type": "int"}]}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "int"},
        {"name": "at", "type": ["null", {"type": "record", "name": "At", "fields": [{"name": "x", "type": "string"}]}]},
    ],
}
NAMES = {"append": ("kafka", "all_orders"), "upsert": ("kafka", "orders_now")}
COPIES = (
    {"table": "all_orders", "partition_by": ["bucket(3, id)"], "sort_by": ["n desc"]},
    {
        "table": "orders_now",
        "mode": "upsert",
        "key": ["k"],
        "select": ["cast(_kafka_key AS string) AS k", "*"],
        "partition_by": ["bucket(2, k)"],
    },
)

KEY = st.integers(0, 6)
CHANGE = st.tuples(st.sampled_from(("put", "put", "put wider", "tombstone", "broken")), KEY)
SEND = st.tuples(st.sampled_from(("send", "send", "send hidden")), st.lists(CHANGE, min_size=1, max_size=6))
NO_CHANGES: list[tuple[str, int]] = []
OTHER = st.tuples(st.sampled_from(("append", "upsert", "maintain", "retention", "requeue")), st.just(NO_CHANGES))
HISTORY = st.lists(SEND | SEND | OTHER, min_size=6, max_size=14)


@dataclass
class Model:
    """One partition. `log`: key and number by offset, None for a tombstone; `broken` ones cannot be decoded; `late`
    ones are stored as they are, and have no rows yet."""

    world: CopyWorld
    log: list[tuple[int, int | None]] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    serial: int = 0
    segments: list[Any] = field(default_factory=list)

    def value(self, kind: str, key: int) -> bytes | None:
        if kind == "put":
            return framed(1, FIRST, {"id": key, "n": self.serial})
        if kind == "put wider":
            return framed(2, WIDER, {"id": 2**40 + key, "n": self.serial, "at": {"x": "Ulm"}})
        return b"\0\0\0\0\1\xff" if kind == "broken" else None

    def send(self, changes: list[tuple[str, int]], *, shown: bool) -> None:
        records: list[Sent] = []
        for kind, key in changes:
            self.serial += 1
            name = f"k{key}".encode()
            if kind == "broken":
                self.broken.add(len(self.log))
            self.log.append((key, None if kind == "tombstone" else self.serial))
            records.append((name, self.value(kind, key)))
        if not shown:
            self.late |= set(range(len(self.log) - len(changes), len(self.log)))
        self.segments.append(self.world.send(records, shown=shown))

    def rows(self, mode: str) -> set[tuple[Any, ...]]:
        found = self.world.rows(NAMES[mode])
        if mode == "append":
            return {(row["_kafka_offset"], row["n"]) for row in found}
        return {(row["k"], row["n"]) for row in found}

    def expected(self, mode: str) -> set[tuple[Any, ...]]:
        if mode == "append":
            return {(offset, n) for offset, (_, n) in enumerate(self.log) if offset not in self.broken | self.late}
        latest = {key: n for offset, (key, n) in enumerate(self.log) if offset not in self.broken | self.late}
        return {(f"k{key}", n) for key, n in latest.items() if n is not None}

    def act(self, kind: str, changes: list[tuple[str, int]]) -> None:
        if kind in {"send", "send hidden"}:
            self.send(changes, shown=kind == "send" or not self.log)
        elif kind == "requeue" and self.late:
            requeue(self.world.place, None, dry_run=False, say=lambda _: None)
            self.late.clear()
        elif kind in NAMES:
            self.check(kind)
        elif kind == "maintain" and self.log:
            for number in range(2):
                maintenance.maintain(self.world.job(number), Budget(0.5, working_s=3600))
        elif (
            kind == "retention"
            and self.segments
            and not self.late
            and all(self.world.run(number).complete for number in range(2))
        ):
            oldest = self.segments.pop(0)
            before = self.world.count(("kafka", TOPIC))
            self.world.shim.delete(oldest)
            gone = oldest.end_offset - oldest.start_offset + 1
            eventually(lambda: self.world.count(("kafka", TOPIC)) == before - gone)

    def check(self, mode: str) -> None:
        if not self.log:
            return
        self.world.run(0 if mode == "append" else 1)
        assert self.rows(mode) == self.expected(mode)
        letters = self.world.rows((*NAMES[mode][:-1], f"{NAMES[mode][-1]}__dead_letters"))
        assert sorted(row["_kafka_offset"] for row in letters) == sorted(self.broken - self.late)


def play(spark: Any, history: list[tuple[str, list[tuple[str, int]]]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        copy_world(spark, Path(folder), *COPIES, schemas=(FIRST, WIDER)) as world,
    ):
        patch.setattr(copy_hold, "COPY_PROGRESS_FRESH_SECONDS", 0.0)
        patch.setattr(chores, "COMPACTION_FILES_MIN", 2)
        patch.setattr(chores, "COMPACTION_DELETE_FILES_MIN", 1)
        patch.setattr(chores, "SNAPSHOT_AGE_MS", -1)
        patch.setattr(maintenance, "SNAPSHOT_AGE_MS", -1)
        patch.setattr(maintenance, "COMPACTION_INPUT_FILES_MIN", 2)
        model = Model(world)
        for kind, changes in history:
            model.act(kind, changes)
        for mode in NAMES:
            model.check(mode)


def searched(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(900)
@searched(3)
@given(history=HISTORY)
def test_copies_are_what_a_dict_says(spark: Any, history: list[tuple[str, list[tuple[str, int]]]]) -> None:
    play(spark, history)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@searched(60)
@given(history=HISTORY)
def test_many_copies_are_what_a_dict_says(spark: Any, history: list[tuple[str, list[tuple[str, int]]]]) -> None:
    play(spark, history)
