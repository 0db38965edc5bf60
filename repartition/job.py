"""One run of one copy: read what is new, write it, and how far it goes, in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog

from iceberg_catalog.names import Owner
from repartition.changes import DELETED, IDENTITY, STEP, Changes, changes
from repartition.drift import drift
from repartition.errors import RepartitionError
from repartition.frontier import FRONTIER, Frontier
from repartition.layout import create_table, evolve_table
from repartition.reading import Reading, plan_reading
from repartition.source import Pinned, Source
from repartition.statements import KEY_MOVED, merge_statement
from repartition.target import Recorded, keep_frontier, load_copy, owner_stamp, quoted, recorded, staged
from rsm_bridge.copy_rules import CopyRule

_PROPERTY = f"spark.sql.iceberg.snapshot-property.{FRONTIER}"
_CHANGES = "tierberg_changes"


@dataclass(frozen=True, slots=True)
class Place:
    """Where copies go: a catalog as PyIceberg and as Spark call it."""

    catalog: Catalog
    spark_name: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run did. `complete`: the copy has all that the topic's table had then."""

    ranges: int
    size_bytes: int
    dead_letters: int
    complete: bool


@dataclass(slots=True)
class CopyJob:
    """One copy of one topic. Not for several threads.

    Attributes:
        session: Spark's.
        source: the topic's table; `source_catalog` is its catalog's name in Spark.
        rule: what the copy is.
        name: of its table.
        max_bytes: how much one run reads; None: all there is.
    """

    session: Any
    source: Source
    source_catalog: str
    rule: CopyRule
    target: Place
    name: tuple[str, ...]
    max_bytes: int | None = None

    def run(self) -> Ran:
        """Reads what is new, once.

        Raises:
            RepartitionError: `raced` if another job was faster: run again; and the others of errors.py.
        """
        pinned = self.source.pin()
        owner = pinned.owner
        if pinned.snapshot_id is None:
            return Ran(0, 0, 0, complete=True)
        made = changes(self.session, self._records(pinned, "false"), self.rule)
        self._bring_to_rule(owner, made)
        before = self._keep_frontier(owner)
        reading = self._reading(pinned, before)
        if not reading.changes:
            return Ran(0, 0, 0, complete=True)
        made = changes(self.session, self._records(pinned, reading.condition()), self.rule)
        with staged(self.session, self.target.spark_name, self.name, before.snapshot_id) as (stage, publish):
            self._write(stage.branch, made, reading)
            letters = self._bury(owner, made, reading)
            publish()
        self._keep_frontier(owner)
        return Ran(len(reading.ranges), reading.size_bytes, letters, reading.complete)

    def _records(self, pinned: Pinned, condition: str) -> Any:
        name = quoted(self.source_catalog, *self.source.name)
        return self.session.sql(f"SELECT * FROM {name} VERSION AS OF {pinned.snapshot_id} WHERE {condition}")

    def _bring_to_rule(self, owner: Owner, made: Changes) -> None:
        frame = made.rows.drop(DELETED, STEP)
        table = load_copy(self.target.catalog, self.name, owner, self.rule.mode)
        if table is None:
            stamp = owner_stamp(owner, self.rule.mode)
            create_table(self.session, self.target.spark_name, self.name, frame, self.rule, stamp)
        else:
            evolve_table(self.session, self.target.spark_name, self.name, table, frame, self.rule)

    def _recorded(self, owner: Owner, name: tuple[str, ...], kind: str) -> Recorded:
        table = load_copy(self.target.catalog, name, owner, kind)
        if table is None:
            raise RepartitionError("raced", f"table {'.'.join(name)} was dropped meanwhile")
        return recorded(table, owner)

    def _keep_frontier(self, owner: Owner) -> Recorded:
        """What the copy records, safe from expiry."""
        found = self._recorded(owner, self.name, self.rule.mode)
        if found.told_by is not None:
            table = self.target.catalog.load_table(self.name)
            keep_frontier(self.session, self.target.spark_name, table, found.told_by)
        return found

    def _reading(self, pinned: Pinned, before: Recorded) -> Reading:
        found = drift(before.frontier, pinned.states)
        if found.rewound:
            raise RepartitionError("rewound", _rewound(self.name, pinned.owner.topic, found.rewound))
        return plan_reading(before.frontier, pinned.states, pinned.files, self.max_bytes, found.repaired)

    def _write(self, branch: str, made: Changes, reading: Reading) -> None:
        if self.rule.mode == "append":
            _append(made.rows, branch, reading.after)
            return
        latest = _latest(made.rows, self.rule)
        latest.createOrReplaceTempView(_CHANGES)
        names = [name for name in latest.columns if name != DELETED]
        with _recording(self.session, reading.after), _moved_keys():
            self.session.sql(merge_statement(branch, _CHANGES, self.rule.key, names, self.rule.key_order))

    def _bury(self, owner: Owner, made: Changes, reading: Reading) -> int:
        """Dead letters, once: their table has a frontier of its own, and comes first."""
        count = int(made.dead.count())
        if not count:
            return 0
        name = (*self.name[:-1], f"{self.name[-1]}__dead_letters")
        if load_copy(self.target.catalog, name, owner, "dead-letters") is None:
            rule = CopyRule(table=self.rule.table)
            stamp = owner_stamp(owner, "dead-letters")
            create_table(self.session, self.target.spark_name, name, made.dead, rule, stamp)
        there = self._recorded(owner, name, "dead-letters")
        fresh = made.dead
        for number, position in there.frontier.positions.items():
            fresh = fresh.where(f"NOT (_kafka_partition = {number} AND _kafka_offset < {position.next})")
        with staged(self.session, self.target.spark_name, name, there.snapshot_id) as (stage, publish):
            _append(fresh, stage.branch, reading.after)
            publish()
        return count


def _append(frame: Any, branch: str, after: Frontier) -> None:
    frame.writeTo(branch).option(f"snapshot-property.{FRONTIER}", after.encode()).append()


def _latest(rows: Any, rule: CopyRule) -> Any:
    """The last change of each key."""
    from pyspark.sql import Window, functions

    by_key = Window.partitionBy(*(functions.col(f"`{name}`") for name in rule.key))
    partition, offset = IDENTITY
    order = [functions.col(partition), functions.col(offset), functions.col(STEP)]
    if rule.key_order == "timestamp":
        order = [functions.col("_kafka_timestamp"), *order]
    numbered = rows.withColumn(
        "__tierberg_rank", functions.row_number().over(by_key.orderBy(*(c.desc() for c in order)))
    )
    if rule.key_order == "partition":
        several = functions.min(partition).over(by_key) != functions.max(partition).over(by_key)
        named = functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in rule.key)))
        text = functions.concat(functions.lit(f"{KEY_MOVED}: "), named)
        checked = functions.when(several, functions.raise_error(text).cast("long")).otherwise(functions.col(offset))
        numbered = numbered.withColumn(offset, checked)
    return numbered.where("__tierberg_rank = 1").drop("__tierberg_rank", STEP)


@contextlib.contextmanager
def _recording(session: Any, after: Frontier) -> Iterator[None]:
    """SQL commits of the block write the frontier."""
    session.conf.set(_PROPERTY, after.encode())
    try:
        yield
    finally:
        session.conf.unset(_PROPERTY)


@contextlib.contextmanager
def _moved_keys() -> Iterator[None]:
    """The error that a statement of ours raises, as an error of ours."""
    try:
        yield
    except Exception as error:
        if KEY_MOVED not in str(error):
            raise
        text = str(error)[str(error).index(KEY_MOVED) :].partition("\n")[0]
        raise RepartitionError("key_moved", text) from error


def _rewound(name: tuple[str, ...], topic: str, offsets: Mapping[int, int]) -> str:
    where = ", ".join(f"partition {number} from offset {offset}" for number, offset in sorted(offsets.items()))
    return (
        f"copy {'.'.join(name)} has read records that the table of topic {topic} took back since, after an unclean "
        f"election: {where}. `tierberg repartition {topic} --repair` reads them again"
    )
