"""What may happen to a topic of two partitions and to two projections of it, in a real world and in a model at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from repartition.errors import RepartitionError
from repartition.maintain import maintain
from repartition.maintain.due import Budget
from repartition.run.run import ProjectionJob, Ran
from rsm_bridge.tables.maintain.requeue_topics import requeue
from tests.projections.projection_oracle import NAMES, Entry, Expected, Log, Place, Shape, expected
from tests.projections.projection_support import START_MS, ProjectionWorld, Sent
from tests.projections.projection_values import bare, encoded, order
from tests.support.eventually import eventually

STEPS = ("read", "write", "dead letters", "publish", "record")
UNDECODABLE = b"\0\0\0\0\1\xff"


class DiedError(Exception):
    """Stands for SIGKILL: nothing after it runs."""


@dataclass(frozen=True)
class Change:
    """What somebody does to a key, 0 to 5; the value is in a version of the schema, `time` counts if keys move."""

    verb: Literal["put", "delete", "move", "broken", "no key"]
    key: int
    version: int
    time: int


@dataclass(frozen=True)
class Act:
    """One thing that happens. `number`: among what it may happen to; `partition`: Kafka's, or which projection."""

    what: str
    partition: int = 0
    changes: tuple[Change, ...] = ()
    number: int = 0


@dataclass
class Model:
    """A world, and what it should be.

    Attributes:
        world: the real one.
        shape: of topic and projections.
        logs: what Kafka has, and had.
        serial: of the last change.
        rewound: modes of projections that may have read what was taken back.
        unsure: keys of which the topic's table had not all any more when it took rows back, and their last change then:
            the upsert projection may lack their rows.
        taken: records that were taken back; their dead letters may stay.
    """

    world: ProjectionWorld
    shape: Shape
    logs: tuple[Log, Log] = field(default_factory=lambda: (Log(), Log()))
    serial: int = 0
    rewound: set[str] = field(default_factory=set)
    unsure: dict[Any, Place] = field(default_factory=dict)
    taken: set[tuple[int, int, int]] = field(default_factory=set)

    def act(self, act: Act) -> None:
        log = self.logs[act.partition]
        begun = any(one.entries for one in self.logs)
        if act.what in {"send", "send hidden"}:
            late = act.what == "send hidden" and self.shape.kind != "moving" and bool(log.entries)
            self._send(act, len(log.entries), late=late)
        elif act.what == "rewind" and self._may_rewind(log):
            self._rewind(act, log)
        elif act.what == "again" and log.segments:
            self._copy_again(log, act.number)
        elif act.what == "retention" and log.segments:
            self._delete(log, act.partition)
        elif act.what == "requeue" and begun:
            requeue(self.world.backend, None, dry_run=False, say=lambda _: None)
            for one in self.logs:
                one.entries[:] = [replace(entry, late=False) for entry in one.entries]
        elif act.what == "merge" and begun:
            self.world.merge()
        elif begun:
            self._repartition(act, ("append", "upsert")[act.partition])

    def check(self, mode: str) -> None:
        """Reads everything there is, and compares."""
        while (ran := self._run(mode, self._job(mode))) is None or not ran.complete:
            pass
        self.rewound.discard(mode)
        wanted, found = expected(self.logs, self.shape), self.world.rows(NAMES[mode])
        if mode == "append":
            rows, seen = wanted.log, {(item["_kafka_partition"], item["_kafka_offset"]): _seen(item) for item in found}
        else:
            key = "id" if self.shape.kind == "debezium" else "k"
            rows, seen = wanted.rows, {item[key]: _seen(item) for item in found}
            lost = {name for name, at in self.unsure.items() if wanted.last.get(name) == at and name not in seen}
            rows = {name: item for name, item in rows.items() if name not in lost}
        apart = {name: (seen.get(name), rows.get(name)) for name in seen | rows if seen.get(name) != rows.get(name)}
        assert not apart, f"{mode}: found and expected {apart}"
        assert len(seen) == len(found)
        self._check_letters(mode, wanted)

    def _check_letters(self, mode: str, wanted: Expected) -> None:
        found = self.world.rows((*NAMES[mode][:-1], f"{NAMES[mode][-1]}__dead_letters"))
        letters = [
            (item["_kafka_partition"], item["_kafka_offset"], round(item["_kafka_timestamp"].timestamp() * 1000))
            for item in found
        ]
        assert len(set(letters)) == len(letters)
        assert set(letters) - self.taken == wanted.letters[mode] - self.taken
        assert set(letters) >= wanted.letters[mode]

    # Projections.

    def _job(self, mode: str, max_bytes: int | None = None) -> ProjectionJob:
        return self.world.job(0 if mode == "append" else 1, max_bytes=max_bytes)

    def _repartition(self, act: Act, mode: str) -> None:
        if act.what == "run":
            self.check(mode)
        elif act.what == "portion":
            self._run(mode, self._job(mode, max_bytes=1))
        elif act.what == "maintain":
            maintain.maintain(self._job(mode), Budget(0.5, working_s=3600))
        elif act.what == "die":
            job = self._job(mode)

            def reached(step: str) -> None:
                if step == STEPS[act.number % len(STEPS)]:
                    raise DiedError

            job.step = reached
            self._run(mode, job)

    def _run(self, mode: str, job: ProjectionJob) -> Ran | None:
        """None: it died. One that says that rows were taken back is repaired at once."""
        try:
            return job.run()
        except RepartitionError as error:
            if isinstance(error.__cause__, DiedError):
                return None
            if error.kind != "rewound" or mode not in self.rewound or job.repair:
                raise
        if mode == "upsert":
            last = expected(self.logs, self.shape).last
            self.unsure |= {name: at for name, at in last.items() if at[1] < self.logs[at[0]].start}
        job.repair = True
        return self._run(mode, job)

    # Kafka.

    def _send(self, act: Act, at: int, *, late: bool = False) -> None:
        log = self.logs[act.partition]
        records: list[Sent] = []
        for change in act.changes:
            for entry, data in self._records(change, act.partition, log):
                log.entries.append(replace(entry, late=late))
                records.append((entry.key, data))
        told = self.world.lineage.get(act.partition, [(0, 0)])[-1][0]
        epoch, times = log.epoch if log.epoch != told else 0, [entry.time for entry in log.entries[at:]]
        sent = self.world.send(records, act.partition, at=at, epoch=epoch, shown=not late, times=times)
        log.segments.append((sent, at + len(records)))

    def _rewind(self, act: Act, log: Log) -> None:
        """A new leader without the newest records writes others instead."""
        at = log.start + act.number % (len(log.entries) - log.start + 1)
        log.epoch += 1
        self.taken |= {(act.partition, at + n, entry.time) for n, entry in enumerate(log.entries[at:])}
        del log.entries[at:]
        log.segments[:] = [(item, min(end, at)) for item, end in log.segments if item.start_offset < at]
        self.rewound = set(NAMES)
        self._send(act, at)

    def _may_rewind(self, log: Log) -> bool:
        """Late rows and a new leader at once are too much for this model; so are keys that move, and retention."""
        gone = self.shape.kind == "moving" and any(one.start for one in self.logs)
        return bool(log.entries) and not gone and not any(entry.late for entry in log.entries)

    def _copy_again(self, log: Log, number: int) -> None:
        """Kafka has not heard that a segment was copied, copies it under another id, and deletes the first copy."""
        backend = number % len(log.segments)
        first, end = log.segments[backend]
        if end == first.end_offset + 1 and not any(entry.late for entry in log.entries[first.start_offset : end]):
            again = replace(first, segment_id=uuid.uuid4().bytes, custom_metadata=b"")
            log.segments[backend] = self.world.shim.copied(again), end
            self.world.shim.delete(replace(first, custom_metadata=b""))

    def _delete(self, log: Log, partition: int) -> None:
        """Retention: the oldest segment goes."""
        first, end = log.segments[0]
        if not any(entry.late for entry in log.entries[:end]):
            del log.segments[0]
            log.start = max(log.start, end)
            self.world.shim.delete(first)
            eventually(lambda: self.world.state(partition).floor >= log.start)

    def _records(self, change: Change, partition: int, log: Log) -> Iterator[tuple[Entry, bytes | None]]:
        """What a change is in Kafka. A key lives in one partition, unless keys move."""
        moving = self.shape.kind == "moving"
        number = change.key if moving else 2 * (change.key // 2) + partition
        self.serial += 1
        name, time = f"k{number}".encode(), START_MS + (change.time if moving else self.serial)
        if change.verb == "broken":
            yield Entry(name, None, time, broken=True), UNDECODABLE
        elif self.shape.kind == "debezium":
            for event in self._events(change, number, log):
                value = None if event is None else encoded(change.version, event, envelope=True)
                yield Entry(name, event, time), value
        elif change.verb == "delete" and not moving:
            yield Entry(name, None, time), None
        else:
            given = order(change.version, number, self.serial)
            yield Entry(None if change.verb == "no key" else name, given, time), encoded(change.version, given)

    def _events(self, change: Change, number: int, log: Log) -> Iterator[dict[str, Any] | None]:
        """Of a database. Not every update says what was before; after a delete there may be a tombstone."""
        there = number in expected((log, Log()), replace(self.shape, where=False)).rows
        before = order(change.version, number, self.serial) if there else None
        after = order(change.version, number, self.serial)
        if change.verb == "no key":
            yield {"before": None, "after": after | {"id": None}, "op": "c"}
        elif change.verb == "delete":
            yield {"before": before, "after": None, "op": "d"}
            if self.serial % 2:
                yield None
        elif change.verb == "move" and before is not None:
            yield {"before": before, "after": after | {"id": (number + 2) % 6}, "op": "u"}
        else:
            told = before if self.serial % 3 else None
            yield {"before": told, "after": after, "op": "u" if there else "c"}


def _seen(found: dict[str, Any]) -> Any:
    """A row without Kafka's columns and nulls."""
    return bare({name: item for name, item in found.items() if not name.startswith("_kafka_")})
