"""`tierberg topic forget`: deletes what a deleted topic has left behind, as Kafka would have done.

Kafka asks once for the deletion of each segment of a deleted topic; what fails because no bridge answers is never asked
for again. So the same tombstones are put here, and a run of the publisher takes the rows out. Everything is kept for
`mass_delete_grace`, within which `tierberg undelete` brings the rows back. The tombstones say who asked for them, so
that `tierberg status` calls nobody for what somebody has just decided. A crash is repaired by running it again.

Only Kafka knows whether a topic is gone, so it must say so itself, by name and id, twice; silence, a client that may
not see the topic, or a Kafka that is not known to be the topic's own cluster (metrics/progress/own_cluster.py) are no
such word. Where it cannot be known, a person names the cluster.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from iceberg_catalog.commit.head import Head
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.tables import rows_in
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, SettingsError, StoreError
from rsm_bridge.limits import FORGET_KAFKA_SECONDS, FORGET_WATCH_SECONDS
from rsm_bridge.metrics.progress.facts import KafkaFacts, why_nothing
from rsm_bridge.metrics.progress.kafka import KafkaClientMissingError, KafkaSource
from rsm_bridge.metrics.progress.own_cluster import Asked, asked, clusters, doubt
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.deleter import Deleter
from rsm_bridge.storage.segments.known import KnownSegment, owner_of, read_segments
from rsm_bridge.storage.segments.topic_segments import clusters_of, owners_of, stored_clusters, topic_ids
from rsm_bridge.storage.segments.undelete_record import UndeleteRecord
from rsm_bridge.storage.segments.withdrawn_rows import with_rows
from rsm_bridge.storage.tombstone import Tombstone
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain.unreadable_table import LOST
from rsm_bridge.tables.publish.table_run import TableRun
from rsm_bridge.values.typed.topics import opened_typed_topics
from rsm_bridge.words import plural

#: What Kafka says now: all its topics, and whether it hides the one of this name.
AskKafka = Callable[[str], KafkaFacts]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be forgotten.

    `topic_id`: 32 hex digits, None: every one of the name that is gone. `clusters`: names of which a person says that
    they are the asked Kafka's, or of a cluster that is gone for good; with any, nothing goes of other clusters.
    """

    topic: str
    topic_id: str | None
    yes: bool
    clusters: frozenset[str] = frozenset()


def kafka_of(settings: Settings, servers: str | None) -> AskKafka:
    """How Kafka is asked. `servers` override those of the settings.

    Raises:
        SettingsError: neither names any.
    """
    bootstrap = servers or settings.kafka.bootstrap_servers
    if bootstrap is None:
        raise SettingsError(
            "only Kafka knows whether a topic is gone: set kafka.bootstrap_servers, or pass --bootstrap-server"
        )
    properties = {name: secret.get_secret_value() for name, secret in settings.kafka.properties.items()}

    def ask(topic: str) -> KafkaFacts:
        """The cluster as it is now."""
        source = KafkaSource({**properties, "bootstrap.servers": bootstrap}, time.monotonic() + FORGET_KAFKA_SECONDS)
        try:
            found = source.describe()
            hidden = frozenset() if topic in found.topics else source.hidden([topic])
        except KafkaClientMissingError as error:
            raise SettingsError("Kafka cannot be asked: `pip install 'tierberg[kafka]'`") from error
        except Exception as error:  # whatever the client raises
            raise BridgeError("deadline", f"Kafka at {bootstrap} could not be asked: {error}") from error
        return KafkaFacts(found.topics, found.broker_config, hidden)

    return ask


def refusal(
    topic: str,
    topic_id: str,
    kafka: KafkaFacts,
    of_topic: Collection[str],
    of_kafka: Collection[str],
    said: Collection[str] = (),
) -> str | None:
    """Why what Kafka says does not prove that a topic id is gone; None when it does.

    Args:
        topic: its name.
        topic_id: 32 hex digits.
        kafka: what it says.
        of_topic: cluster names of its segments.
        of_kafka: those of the store's topics that Kafka has by id.
        said: cluster names that a person vouches for, as Wish has them.
    """
    if topic_id in {item.topic_id for item in kafka.topics.values()}:
        return f"Kafka still has topic {topic} with id {topic_id}"
    if topic in kafka.hidden:
        return f"Kafka does not say that topic {topic} is unknown: may this client see it?"
    if (wrong := why_nothing(kafka.broker_config)) is not None:
        return f"this cluster does not tier to Tierberg ({wrong[1]}): is it the right one?"
    whose = asked(of_topic, of_kafka)
    if whose is Asked.OWN or (of_topic and set(of_topic) <= set(said)):
        return None
    own = clusters(of_topic)
    options = " ".join(f"--cluster {shlex.quote(name)}" for name in sorted(of_topic))
    or_this = "is this one, or " if whose is Asked.UNSURE else ""
    return (
        f"that Kafka has no topic {topic} with id {topic_id} proves nothing: {doubt(of_topic, of_kafka)}. Ask {own} "
        f"itself: --bootstrap-server, or kafka.bootstrap_servers. Only if {own} {or_this}is gone for good: {options}"
    )


@dataclass(slots=True, kw_only=True)
class _Question:
    """What the store has under the name, and whether Kafka proves that it is gone.

    `ids`: by topic id in hex, of all of the store. `found`: segments of those that were chosen. `names`: cluster names
    of those that were looked at.
    """

    store: ObjectStore
    wish: Wish
    ids: dict[str, bytes]
    found: dict[str, list[KnownSegment]]
    names: dict[str, frozenset[str]]

    def refusals(self, kafka: KafkaFacts) -> dict[str, str | None]:
        """By chosen topic id."""
        for key in {item.topic_id for item in kafka.topics.values()} & self.ids.keys() - self.names.keys():
            self.names[key] = stored_clusters(self.store, self.ids[key])
        there = {item.topic_id for item in kafka.topics.values()} & self.names.keys()
        of_kafka = frozenset[str]().union(*(self.names[key] for key in there))
        return {
            key: refusal(self.wish.topic, key, kafka, self.names[key], of_kafka, self.wish.clusters)
            or self._unreadable(self.ids[key])
            for key in self.found
        }

    def _unreadable(self, topic_id: bytes) -> str | None:
        """Why nobody can tell what was left from what an undelete brought back, perhaps of this very topic."""
        try:
            UndeleteRecord(self.store, topic_id).read()
        except StoreError:
            raise
        except BridgeError as error:
            return f"{error}. Operations manual: `A damaged record of an undelete`"
        return None


def _question(backend: Backend, wish: Wish) -> _Question:
    owners = owners_of(backend.store, wish.topic, wish.topic_id)
    found = {owner.topic_id.hex(): read_segments(backend.store, owner.topic_id) for owner in owners}
    names = {key: clusters_of(segments) for key, segments in found.items()}
    if wish.clusters:
        found = {key: segments for key, segments in found.items() if names[key] & wish.clusters}
    if not found:
        known = clusters(frozenset[str]().union(*names.values()))
        raise BridgeError("not_found", f"{clusters(wish.clusters)}: what the store has of {wish.topic} is of {known}")
    return _Question(
        store=backend.store,
        wish=wish,
        ids={item.hex(): item for item in topic_ids(backend.store)},
        found=found,
        names=names,
    )


def forget(
    backend: Backend, wish: Wish, ask: AskKafka, say: Callable[[str], None], wait: Callable[[float], None]
) -> None:
    """Says what would go, and with `yes` deletes it.

    Args:
        backend: store and catalog.
        wish: what.
        ask: Kafka.
        say: receives each line.
        wait: `time.sleep`.

    Raises:
        BridgeError: `not_found` when the store has nothing of the topic, `bad_request` when Kafka does not say twice
            that it is gone, or is not known to be its cluster, and while the record of an undelete cannot be read;
            `corrupt_object` when the segments are deleted and the table cannot be read.
        SettingsError, SegmentError, CatalogError, RetryRunError: and what else catalog and storage raise. Run it again.
    """
    question = _question(backend, wish)
    refusals = question.refusals(ask(wish.topic))
    if None not in refusals.values():
        raise BridgeError("bad_request", "; ".join(str(why) for why in refusals.values()))
    for key, why in refusals.items():
        mine = question.found[key]
        say(_described(wish.topic, key, mine) if why is None else f"{wish.topic} ({key}) is not touched: {why}")
    if not wish.yes:
        say("nothing was changed: --yes deletes it")
        return
    wait(FORGET_WATCH_SECONDS)
    again = question.refusals(ask(wish.topic))
    proven = [key for key, why in refusals.items() if why is None]
    if not any(again[key] is None for key in proven):
        raise BridgeError("bad_request", "; ".join(str(again[key]) for key in proven))
    for key in proven:
        if again[key] is None:
            _forget_one(backend, question.ids[key], question.found[key], say)


def _described(topic: str, topic_id: str, segments: list[KnownSegment]) -> str:
    live = [known for known in segments if known.live]
    partitions = len({known.key.partition for known in live})
    return (
        f"{topic} ({topic_id}) of {clusters(clusters_of(segments))}: {len(live)} segments of {partitions} partitions "
        f"with {sum(item.rows for item in live)} rows are left, and what the table has of copies that Kafka withdrew; "
        "Kafka has no such topic"
    )


def _forget_one(backend: Backend, topic_id: bytes, segments: list[KnownSegment], say: Callable[[str], None]) -> None:
    owner = owner_of(segments)
    live = [known for known in segments if known.live]
    _bury(backend, topic_id, live)
    UndeleteRecord(backend.store, topic_id).end()
    with opened_typed_topics(backend.settings, backend.store, lambda: backend.catalog) as topics:
        run = TableRun(
            store=backend.store,
            catalog=backend.catalog,
            topic_id=topic_id,
            context=table_context(backend.settings, backend.store, typed=topics.table),
            whole=True,
            by_command=True,
        )
        try:
            done = run.until_landed(run.run, "the rows are still in the table")
        except (CatalogError, ObjectNotFoundError) as error:
            if isinstance(error, CatalogError) and error.kind not in LOST:
                raise
            gone = plural(len(live), "segment")
            said = f"{owner.topic}: {gone} deleted, and the table cannot be read: `tierberg status` says what to do"
            raise BridgeError("corrupt_object", f"{said} ({error})") from error
        removed = done.files_removed
        # Only now is it certain which rows no deletion reaches.
        withdrawn = [] if done.head is None else with_rows(done.segments, done.head.files, done.states)
        if withdrawn:
            _bury(backend, topic_id, withdrawn)
            done = run.until_landed(run.run, "rows of withdrawn copies are still in the table")
            removed += done.files_removed
    and_withdrawn = (
        f" and {plural(len(withdrawn), 'copy that Kafka withdrew', 'copies that Kafka withdrew')}" if withdrawn else ""
    )
    say(
        f"{owner.topic} ({topic_id.hex()}): {len(live)} segments{and_withdrawn} deleted, {removed} files left the table"
    )
    if done.head is not None:
        _say_what_stays(done.head, owner.topic, say)


def _say_what_stays(head: Head, topic: str, say: Callable[[str], None]) -> None:
    if head.files:
        why = "`table_retention`, projections that have not read them, or rows that were never deleted"
        say(f"{topic}: {len(head.files)} files stay in the table: {why}")
    if head.foreign:
        files = plural(len(head.foreign), "file") + " not written by Tierberg"
        rows = "" if head.files else f", with {plural(rows_in(head.table), 'row')}"
        where = "see `foreign_files` and `foreign_commits` in `tierberg status`"
        say(f"{topic}: left in the table {files}{rows}: {where}")


def _bury(backend: Backend, topic_id: bytes, segments: list[KnownSegment]) -> None:
    deleter = Deleter(backend.store)
    for known in segments:
        owner = known.owner
        stone = Tombstone(
            kind="deleted",
            time_ms=int(time.time() * 1000),
            topic=owner.topic,
            cluster_name=owner.cluster,
            forgotten=True,
        )
        deleter.bury(known.listed.key, stone)
    UndeleteRecord(backend.store, topic_id).forget(frozenset(known.listed.key for known in segments))
