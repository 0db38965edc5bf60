"""One run of one projection: read what is new, write it, and how far it goes, in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table

from iceberg_catalog.plan.decide import NEVER
from iceberg_catalog.plan.types import PartState
from iceberg_catalog.tables.names import Owner
from repartition.changes.envelope import POSITION
from repartition.changes.select import IDENTITY, Changes, changes
from repartition.changes.truncation import truncated_before
from repartition.errors import RepartitionError, as_ours, first_line
from repartition.run.adopt import adopt, of_nobody
from repartition.run.drift import Drift, drift
from repartition.run.frontier import Frontier, Position
from repartition.run.read_plan import Range, Reading, any_of, first_live, plan_reading, position_at
from repartition.run.replay import letter_ranges, of_letters
from repartition.run.reporting import lost_by_now, now_ms, report_failure, report_run
from repartition.run.sort import AS_GIVEN, laid_out
from repartition.run.source import Pinned, Source
from repartition.run.table import create_table, evolve_table, refuse_other_rule, rule_stamp
from repartition.run.target import (
    Recorded,
    frontier_of_rows,
    keep_frontier,
    load_projection,
    owner_stamp,
    quoted,
    recorded,
    staged,
)
from repartition.run.write import append, conformed, cut, made_from, upsert
from repartition.spark.internals import union_columns
from repartition.spark.session import unconstrained
from repartition.spark.targets import Target
from rsm_bridge.config.projections import DEAD_LETTERS, ProjectionRule
from rsm_bridge.shell_words import command_line
from rsm_bridge.storage.projections.hold import DeclaredProjection

LETTERS = "dead-letters"
NOTHING: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run did.

    Attributes:
        reading: what was read; no ranges: there was nothing new.
        dead_letters: records that have no row.
        snapshot_id: of the topic's table, that was read; None: it has none yet.
        replayed: dead letters of before that are none any more.
    """

    reading: Reading
    dead_letters: int
    snapshot_id: int | None
    replayed: int = 0

    @property
    def ranges(self) -> int:
        """How many partitions had something new."""
        return len(self.reading.ranges)

    @property
    def complete(self) -> bool:
        """The projection has all that this snapshot has."""
        return self.reading.complete


@dataclass(slots=True, kw_only=True)
class ProjectionJob:
    """One projection of one topic. Not for several threads.

    Attributes:
        session: Spark's.
        source: the topic's table; `source_catalog` is its catalog's name in Spark.
        projection: what it is to be.
        target: its catalog.
        max_bytes: how much one run reads; None: all there is.
        repair: read again what the topic's table took back, and go by the rows where nothing says how far they go,
            instead of stopping.
        replay: make the dead letters anew, once, as soon as everything was read.
        given_up: whether the job ends, so that a failure says nothing of this projection.
        planned: told what a run is about to read; not when there is nothing new.
        step: told what comes next: `adopt`, `read`, `write`, `dead letters`, `publish`, and chores of maintenance.
    """

    session: Any
    source: Source
    source_catalog: str
    projection: DeclaredProjection
    target: Target
    max_bytes: int | None = None
    repair: bool = False
    replay: bool = False
    given_up: Callable[[], bool] = lambda: False
    planned: Callable[[Reading], None] = lambda _reading: None
    step: Callable[[str], None] = lambda _step: None

    @property
    def rule(self) -> ProjectionRule:
        """As declared."""
        return self.projection.rule

    @property
    def name(self) -> tuple[str, ...]:
        """Of the projection's table, namespaces first."""
        return tuple(self.projection.table.split("."))

    @property
    def letters_name(self) -> tuple[str, ...]:
        """Of the table of its dead letters, the same way."""
        return (*self.name[:-1], f"{self.name[-1]}{DEAD_LETTERS}")

    def run(self) -> Ran:
        """Reads what is new, once, and leaves word of it in the store.

        Raises:
            RepartitionError: `raced` if another job was faster: run again; and the others of errors.py.
        """
        pinned: Pinned | None = None
        pinned_ms = now_ms()
        try:
            pinned = self.source.pin()
            ran = self._run(pinned)
            if self.replay and ran.complete:
                ran = replace(ran, replayed=self._replay(pinned))
                self.replay = False
            table = load_projection(self.target.catalog, self.name, self.source.owner, self.rule.mode)
            letters = load_projection(self.target.catalog, self.letters_name, self.source.owner, LETTERS)
        except Exception as error:
            said = error if isinstance(error, RepartitionError) else self._said(pinned, error)
            if said.kind != "raced" and not self.given_up():
                self.report(said)
            raise said from error
        report_run(
            self.source.backend.store,
            self.source.owner.topic_id,
            self.projection,
            ran.reading.after,
            snapshot_id=ran.snapshot_id,
            pinned_ms=pinned_ms,
            complete=ran.complete,
            table=table,
            letters=letters,
        )
        return ran

    def report(self, error: RepartitionError) -> None:
        """Leaves word of a failure in the store, for `tierberg status`, until a run goes well."""
        report_failure(self.source.backend.store, self.source.owner.topic_id, self.projection, error)

    def _run(self, pinned: Pinned) -> Ran:
        if self.rule.adopt:
            self._adopt(pinned.owner)
        before = self.recorded(pinned.owner, self.name, self.rule.mode)
        found = drift(before.frontier, pinned.states)
        again = self._again(pinned, found)
        reading = plan_reading(before.frontier, pinned.states, pinned.files, self.max_bytes, again)
        if pinned.snapshot_id is None or reading.after == before.frontier:
            return Ran(Reading(ranges=(), before=before.frontier, after=before.frontier), 0, pinned.snapshot_id)
        if reading.lost:
            lost = lost_by_now(self.source.backend.store, self.projection, before.frontier, reading.lost)
            reading = replace(reading, after=replace(reading.after, lost=lost))
        self.planned(reading)
        self.step("read")
        made, before_truncation = self._made(pinned, reading)
        begun = staged(self.session, self.target.spark_name, self.name, before.snapshot_id)
        with unconstrained(self.session), begun as (branch, publish):
            # Rows of an append could come twice, and what a key was before rows that were taken back is read again.
            taken = again if self.rule.mode == "append" else found.rewound
            if taken:
                cut(self.session, branch, made_from(taken))
            if before_truncation:
                cut(self.session, branch, before_truncation)
            self.step("write")
            self._write(branch, made, reading, late=_late(pinned, found))
            self.step("dead letters")
            letters = self._bury(pinned, made, reading, again)
            self.step("publish")
            publish()
        return Ran(reading, letters, pinned.snapshot_id)

    def _adopt(self, owner: Owner) -> None:
        table = of_nobody(self.target.catalog, self.name)
        if table is None:
            return
        self.step("adopt")
        records = self.session.sql(f"SELECT * FROM {quoted(self.source_catalog, *self.source.name)} WHERE false")
        frame = changes(self.session, records, self.rule).plain_rows()
        with unconstrained(self.session):
            adopt(self.session, self.target.spark_name, table, frame, self.rule, owner)

    def _replay(self, pinned: Pinned) -> int:
        """Makes the dead letters anew; how many are none any more. Rows come first: a letter that has one goes next.

        The projection has read everything, and reads no further by this.
        """
        owner = pinned.owner
        there, projection = (
            self.recorded(owner, self.letters_name, LETTERS),
            self.recorded(owner, self.name, self.rule.mode),
        )
        if there.snapshot_id is None or pinned.snapshot_id is None:
            return 0
        letters = self.session.sql(
            f"SELECT {', '.join(IDENTITY)} FROM {self._spark_name(self.letters_name)} VERSION AS OF {there.snapshot_id}"
        )
        firsts = {row[0]: row[1] for row in letters.groupBy(IDENTITY[0]).min(IDENTITY[1]).collect()}
        asked = any_of(letter_ranges(firsts, projection.frontier, pinned.states, pinned.files))
        if self.rule.mode == "upsert" and self.rule.key_order != "partition" and firsts:
            firsts = dict.fromkeys(pinned.states, 0)  # a later change of the key may be in any partition
        ranges = letter_ranges(firsts, projection.frontier, pinned.states, pinned.files)
        letters = letters.where(asked)
        count = int(letters.count())
        if not count:
            return 0
        self.step("replay")
        reading = Reading(ranges=ranges, before=projection.frontier, after=projection.frontier)
        made, _ = self._made(pinned, reading)
        with (
            unconstrained(self.session),
            staged(self.session, self.target.spark_name, self.name, projection.snapshot_id) as (branch, publish),
        ):
            rows = of_letters(made.rows, letters, self.rule, self.session.table(branch))
            self._write(branch, replace(made, rows=rows), reading, again=True)
            publish()
        self.step("dead letters")
        dead = made.dead.join(letters, list(IDENTITY), "semi")
        with staged(self.session, self.target.spark_name, self.letters_name, there.snapshot_id) as (branch, publish):
            cut(self.session, branch, asked)
            append(conformed(self.session, dead, branch), branch, there.frontier)
            left = self.session.table(branch).where(asked).count()
            publish()
        return count - int(left)

    def _spark_name(self, name: tuple[str, ...]) -> str:
        return quoted(self.target.spark_name, *name)

    def recorded(self, owner: Owner, name: tuple[str, ...], kind: str) -> Recorded:
        """What the table records, which is then safe from expiry; nothing where there is no table yet."""
        table = load_projection(self.target.catalog, name, owner, kind)
        if table is None:
            return Recorded(None, None, Frontier(owner.topic_id))
        if kind != LETTERS:
            refuse_other_rule(table, self.rule)
        try:
            found = recorded(table, owner)
        except RepartitionError as error:
            if error.kind != "no_frontier" or not self.repair or kind == "upsert":
                raise
            return frontier_of_rows(self.session, self.target.spark_name, table, owner)
        if found.told_by is not None:
            keep_frontier(self.session, self.target.spark_name, table, found.told_by)
        return found

    def _said(self, pinned: Pinned | None, error: Exception) -> RepartitionError:
        """Somebody else's error as ours. Where a slow run lost its snapshot, the next one has a newer one."""
        expired = False
        with contextlib.suppress(Exception):  # a catalog that is away: the first error says it
            expired = pinned is not None and pinned.snapshot_id is not None and not self.source.has(pinned.snapshot_id)
        if expired:
            said = f"a snapshot of table {'.'.join(self.source.name)} expired while it was read: {first_line(error)}"
            return RepartitionError("raced", said)
        return as_ours(error)

    def _again(self, pinned: Pinned, found: Drift) -> Mapping[int, int]:
        """Offsets below the frontier to begin at, by partition."""
        late = _late(pinned, found)
        if found.rewound and not self.repair:
            raise RepartitionError("rewound", _rewound(self.name, pinned.owner.topic, found.rewound))
        if self.rule.mode == "append":
            return _least(found.rewound, late)
        # What a key was before the record that was taken back is nowhere but in the topic's table. Where keys move it
        # may be in another partition, and so may be what came between a record that is late and the row.
        moving = self.rule.key_order != "partition" and bool(found.rewound or (late and self.rule.leaves_out))
        whole = pinned.states if moving else found.rewound
        firsts = {n: min(pinned.states[n].floor, first_live(n, 0, pinned.files)) for n in whole}
        return {**late, **firsts}

    def _made(self, pinned: Pinned, reading: Reading) -> tuple[Changes, str | None]:
        """What the records become, for a table that has the columns by then, and the rows that a truncation takes."""
        name = quoted(self.source_catalog, *self.source.name)
        where = f"VERSION AS OF {pinned.snapshot_id} WHERE {reading.condition()}"
        records = self.session.sql(f"SELECT * FROM {name} {where}")
        before_truncation = truncated_before(records, self.rule, len(pinned.states))
        made = changes(self.session, records, self.rule)
        if before_truncation:
            made = replace(made, rows=made.rows.where(f"NOT ({before_truncation})"))
        self._bring_to_rule(pinned.owner, made)
        return made, before_truncation

    def _bring_to_rule(self, owner: Owner, made: Changes) -> None:
        frame = made.plain_rows()
        table = self._table(owner)
        if table is not None:
            evolve_table(self.session, self.target.spark_name, self.name, table, frame, self.rule)
            return
        stamp = owner_stamp(owner, self.rule.mode) | rule_stamp(self.rule)
        create_table(self.session, self.target.spark_name, self.name, frame, self.rule, stamp)
        self._table(owner)  # another job may have made it meanwhile, by another rule

    def _table(self, owner: Owner) -> Table | None:
        """The projection's, of the rule's key."""
        table = load_projection(self.target.catalog, self.name, owner, self.rule.mode)
        if table is not None:
            refuse_other_rule(table, self.rule)
        return table

    def _write(
        self, branch: str, made: Changes, reading: Reading, *, late: Mapping[int, int] = NOTHING, again: bool = False
    ) -> None:
        rows = conformed(self.session, made.rows, branch)
        if self.rule.mode == "append":
            with laid_out(self.session, rows, self.target.spark_name, self.rule) as placed:
                append(placed, branch, reading.after, AS_GIVEN)
        else:
            given = replace(made, rows=rows)
            catalog = quoted(self.target.spark_name)
            # Of a partition everything from the first that is late is read again; of keys that move, all there is.
            ordered = self.rule.key_order == "partition"
            upsert(
                self.session,
                given,
                branch,
                reading.after,
                self.rule,
                catalog=catalog,
                few=reading.few,
                again=again or bool(ordered and late),
                late=made_from(late) if late and not ordered else None,
            )

    def _bury(self, pinned: Pinned, made: Changes, reading: Reading, again: Mapping[int, int]) -> int:
        """Dead letters, once: their table has a frontier of its own, and comes first.

        That is ahead of the projection's where a run died in between. Letters of records that the topic's table took
        back, or that come late, are taken out and made anew: some may be rows now, or may be gone.
        """
        owner, name, count = pinned.owner, self.letters_name, made.count_dead()
        there = self.recorded(owner, name, LETTERS)
        anew = _letters_anew(pinned, there.frontier, reading, again)
        if not count and not anew:
            return 0
        if there.snapshot_id is None:
            plain = ProjectionRule(table=self.rule.table)
            stamp = owner_stamp(owner, LETTERS)
            create_table(self.session, self.target.spark_name, name, made.dead, plain, stamp)
        elif POSITION in made.dead.columns:  # letters of before `explode` was set had none
            union_columns(self.session, self._spark_name(name), made.dead)
        known = {n: min(position.next, anew.get(n, NEVER)) for n, position in there.frontier.positions.items()}
        fresh = made.dead.where(f"NOT {any_of([Range(n, 0, end) for n, end in sorted(known.items())])}")
        with staged(self.session, self.target.spark_name, name, there.snapshot_id) as (branch, publish):
            if anew:
                cut(self.session, branch, made_from(anew))
            append(conformed(self.session, fresh, branch), branch, _ahead(reading.after, known, pinned.states))
            publish()
        return count


def _late(pinned: Pinned, found: Drift) -> dict[int, int]:
    """First offsets that have got rows late. What Kafka has deleted since cannot be read again, and stays as it is."""
    return {number: first_live(number, at, pinned.files) for number, at in found.repaired.items()}


def _least(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """By partition, of those that either has."""
    return {n: min(one.get(n, NEVER), other.get(n, NEVER)) for n in one.keys() | other.keys()}


def _letters_anew(pinned: Pinned, frontier: Frontier, reading: Reading, again: Mapping[int, int]) -> dict[int, int]:
    """Where dead letters begin anew, by partition; never before what this run reads. `frontier`: theirs."""
    if (
        not reading.before.positions
    ):  # the projection's first run: letters are of one that was dropped, or of a run that died
        return {number: first_live(number, 0, pinned.files) for number in frontier.positions}
    found = drift(frontier, pinned.states)
    anew: dict[int, int] = {}
    for number, at in _least(found.rewound, _late(pinned, found)).items():
        read = reading.before.positions.get(number, Position()).next
        anew[number] = max(at, min(read, again.get(number, read)))
    for number, position in frontier.positions.items():
        read = reading.before.positions.get(number, Position()).next
        if position.next > read:  # of a run that died before its rows were published; the rule may be another by now
            anew[number] = min(anew.get(number, NEVER), read)
    return anew


def _ahead(after: Frontier, known: Mapping[int, int], states: Mapping[int, PartState]) -> Frontier:
    """`after`, but no partition less far than in `known`."""
    further = {n: position_at(end, states[n]) for n, end in known.items() if n in states}
    positions = {
        n: max(further.get(n, position), position, key=lambda item: item.next)
        for n, position in after.positions.items()
    }
    return Frontier(after.topic_id, {**further, **positions})


def _rewound(name: tuple[str, ...], topic: str, offsets: Mapping[int, int]) -> str:
    where = ", ".join(f"partition {number} from offset {offset}" for number, offset in sorted(offsets.items()))
    return (
        f"projection {'.'.join(name)} has read records that the table of topic {topic} took back since, after an "
        f"unclean election: {where}. `{command_line('tierberg repartition', [topic], ['--repair'])}` reads them again"
    )
