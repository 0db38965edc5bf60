"""What each fault does. One call is one fault, from its start to its end; it returns what it was done to.

A fault that cannot be had now (no leader, nothing to delete) raises :class:`NotNow` and is not counted.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

from confluent_kafka import KafkaException

from tests.chaos import limits
from tests.chaos.plan import Fault
from tests.chaos.servers import Servers, set_clock
from tests.chaos.topics import Topic
from tierberg.stack.cluster_admin import ClusterAdmin
from tierberg.stack.errors import StackError
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker


class NotNow(Exception):  # noqa: N818 - it is no error
    """The world is not in a state for this fault."""


@dataclass(slots=True)
class Acts:
    """All faults by name, on one world. `ended` cuts every fault short."""

    servers: Servers
    topics: Sequence[Topic]
    ended: Event
    java: ClusterAdmin | None = None
    _broker: Lock = field(default_factory=Lock)
    _bridge: Lock = field(default_factory=Lock)

    def act(self, fault: Fault) -> str:
        """Does it. Raises NotNow, or what broke it; brokers and bridges that it had ended run again all the same."""
        try:
            return self._table()[fault.name](fault)
        except NotNow:
            raise
        except Exception:
            with self._broker, self._bridge:
                self.servers.start_ended()
            raise

    def _table(self) -> Mapping[str, Callable[[Fault], str]]:
        store, catalog = self.servers.store, self.servers.catalog
        lake = self.servers.lake
        return {
            "bridge-kill": lambda fault: self._restart(self._a_bridge(fault), fault, kill=True),
            "bridge-stop": lambda fault: self._restart(self._a_bridge(fault), fault, kill=False),
            "bridge-freeze": self._freeze_bridge,
            "bridge-clock": self._clock,
            "bridges-away": self._bridges_away,
            "broker-kill": lambda fault: self._restart(self._a_broker(fault), fault, kill=True),
            "broker-stop": lambda fault: self._restart(self._a_broker(fault), fault, kill=False),
            "broker-freeze": self._freeze_broker,
            "broker-disk-full": self._broker_disk_full,
            "broker-and-bridges-kill": self._all_kill,
            "leader-move": self._leader_move,
            "replica-wipe": self._replica_wipe,
            "unclean": self._unclean,
            "store-slow": lambda fault: self._weather(store, fault, delay_s=0.02 + 2 * fault.draws[0] ** 3),
            "store-refuse": lambda fault: self._weather(store, fault, refuse=0.1 + 0.9 * fault.draws[0]),
            "store-cut": lambda fault: self._weather(store, fault, cut=0.05 + 0.3 * fault.draws[0]),
            "store-lost": lambda fault: self._weather(store, fault, lose=0.05 + 0.3 * fault.draws[0]),
            "store-full": lambda fault: self._weather(store, fault, full=1),
            "store-disk-full": self._store_disk_full,
            "store-freeze": lambda fault: self._freeze(lake.s3.process, fault),
            "store-kill": lambda fault: self._restart_process(lake.s3.process, lake.s3.start, fault),
            "catalog-kill": lambda fault: self._restart_process(lake.catalog.process, lake.catalog.start, fault),
            "catalog-freeze": lambda fault: self._freeze(lake.catalog.process, fault),
            "catalog-lost": lambda fault: self._weather(catalog, fault, lose=0.1 + 0.5 * fault.draws[0]),
            "catalog-cut": lambda fault: self._weather(catalog, fault, cut=0.1 + 0.4 * fault.draws[0]),
            "catalog-slow": lambda fault: self._weather(catalog, fault, delay_s=0.1 + 4 * fault.draws[0] ** 2),
            "delete-records": self._delete_records,
            "retention": self._retention,
            "recreate": self._recreate,
        }

    def _wait(self, seconds: float) -> None:
        self.ended.wait(seconds)

    def _a_bridge(self, fault: Fault) -> Bridge:
        return self.servers.bridges[int(fault.draws[0] * len(self.servers.bridges))]

    def _a_broker(self, fault: Fault) -> KafkaBroker:
        brokers = self.servers.kafka.brokers
        return brokers[1 + int(fault.draws[0] * len(brokers))]

    def _restart(self, server: Bridge | KafkaBroker, fault: Fault, *, kill: bool) -> str:
        lock = self._bridge if isinstance(server, Bridge) else self._broker
        with lock:
            (server.kill if kill else server.stop)()
            self._wait(fault.lasts_s)
            server.start()
            if isinstance(server, KafkaBroker):
                self.servers.wait_in_sync()
        return server.folder.name

    @staticmethod
    def _restart_process(process: ServerProcess, start: Callable[[], None], fault: Fault) -> str:
        try:
            process.kill()
            time.sleep(fault.lasts_s)
        finally:
            start()
        return process.name

    def _freeze(self, process: ServerProcess, fault: Fault) -> str:
        process.freeze()
        try:
            self._wait(fault.lasts_s)
        finally:
            process.resume()
        return process.name

    def _freeze_bridge(self, fault: Fault) -> str:
        with self._bridge:
            return self._freeze(self._a_bridge(fault).process, fault)

    def _freeze_broker(self, fault: Fault) -> str:
        with self._broker:
            broker = self._a_broker(fault)
            self._freeze(broker.process, fault)
            self.servers.wait_in_sync()
        return broker.folder.name

    def _broker_disk_full(self, fault: Fault) -> str:
        """Its files cannot grow: it gives up its log folders, and ends for it."""
        with self._broker:
            broker = self._a_broker(fault)
            size = self._files_cannot_grow(broker.process, fault)
            broker.stop()
            broker.start()
            self.servers.wait_in_sync()
        return f"{broker.folder.name} at {size} bytes"

    def _store_disk_full(self, fault: Fault) -> str:
        """Objects end in the middle of their writing."""
        s3 = self.servers.lake.s3
        size = self._files_cannot_grow(s3.process, fault)
        if not s3.process.alive:
            s3.start()
        return f"at {size} bytes"

    def _files_cannot_grow(self, process: ServerProcess, fault: Fault) -> int:
        """For a while no file of the process grows beyond a size, whatever the disk has left."""
        size = int(limits.MEBIBYTE * fault.draws[1] ** 2)
        free = resource.RLIM_INFINITY
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, free))
        try:
            self._wait(fault.lasts_s)
        finally:
            if process.alive:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (free, free))
        return size

    def _clock(self, fault: Fault) -> str:
        bridge = self._a_bridge(fault)
        # Mostly about a day, sometimes minutes.
        far = limits.DAY_S * (0.9 + 0.3 * fault.draws[1]) if fault.draws[1] > 0.2 else 900
        shift = far if fault.draws[2] < 0.6 else -far
        set_clock(bridge, shift)
        self._wait(fault.lasts_s)
        set_clock(bridge, 0)
        return f"{bridge.folder.name} by {shift:.0f} s"

    def _bridges_away(self, fault: Fault) -> str:
        with self._bridge:
            for bridge in self.servers.bridges:
                bridge.kill()
            self._wait(fault.lasts_s)
            self._start_bridges()
        return "all"

    def _all_kill(self, fault: Fault) -> str:
        """The bridges first, the broker while it asks them; it starts before they answer again."""
        broker = self._a_broker(fault)
        with self._broker, self._bridge:
            for bridge in self.servers.bridges:
                bridge.kill()
            self._wait(fault.draws[1] * 3)
            broker.kill()
            self._wait(fault.lasts_s)
            broker.start()
            self._wait(fault.draws[2] * 6)
            self._start_bridges()
            self.servers.wait_in_sync()
        return broker.folder.name

    def _start_bridges(self) -> None:
        with ThreadPoolExecutor(len(self.servers.bridges)) as pool:
            list(pool.map(Bridge.start, self.servers.bridges))

    def _weather(self, proxy: object, fault: Fault, **weather: float) -> str:
        proxy.set(**weather)  # type: ignore[attr-defined]
        self._wait(fault.lasts_s)
        proxy.set()  # type: ignore[attr-defined]
        ((name, size),) = weather.items()
        return f"{name} {size:.2f}"

    def _chosen(self, fault: Fault, wanted: Callable[[Topic], bool]) -> tuple[Topic, int]:
        found = [(topic, number) for topic in self.topics if wanted(topic) for number in topic.partitions]
        if not found:
            raise NotNow
        return found[int(fault.draws[0] * len(found))]

    def _delete_records(self, fault: Fault) -> str:
        topic, partition = self._chosen(fault, lambda one: one.shape.cut)
        admin = self.servers.admin
        try:
            start = admin.start_offsets(topic.name, [partition])[partition]
            end = admin.end_offsets(topic.name, [partition])[partition]
            if end - start < 10:
                raise NotNow
            # Near the start, anywhere, or all there is.
            part = fault.draws[1] ** 2 if fault.draws[2] < 0.8 else 1.0
            before = start + max(1, int((end - start) * part))
            topic.deleted_below[partition] = max(before, topic.deleted_below.get(partition, 0))
            # Kafka cuts the leader epochs at once and writes the log start down later. A broker that is killed between
            # the two begins its log again where it has no epoch, and can copy nothing of the partition any more: it
            # fails before it asks a plugin (4.3.1). That is Kafka's own, so no broker dies meanwhile.
            with self._broker:
                admin.delete_records(topic.name, partition, before)
                time.sleep(limits.START_CHECKPOINT_S)
        except (KafkaException, StackError, TimeoutError) as error:  # the last: no answer to a future in time
            raise NotNow from error
        return f"{topic.name}-{partition} below {before} of {start} to {end}"

    def _retention(self, fault: Fault) -> str:
        topic, _ = self._chosen(fault, lambda one: one.shape.cut or one.shape.kept)
        topic.retained = True
        size = int(limits.MEBIBYTE * (1 + 3 * fault.draws[1]))
        try:
            self.servers.admin.set_topic_config(topic.name, {"retention.bytes": str(size)})
            self._wait(fault.lasts_s)
        except (KafkaException, TimeoutError) as error:
            raise NotNow from error
        finally:
            self._until_done(lambda: self.servers.admin.set_topic_config(topic.name, {"retention.bytes": "-1"}))
        return f"{topic.name} to {size} bytes"

    def _recreate(self, fault: Fault) -> str:
        topic, _ = self._chosen(fault, lambda one: one.shape.again)
        with topic.gate.alone(limits.TOPIC_LOCK_S) as got:
            if not got:
                raise NotNow
            admin = self.servers.admin
            self._until_done(lambda: admin.delete_topic(topic.name))
            self._until_done(lambda: _require(topic.name not in admin.topic_names()))
            self._wait(fault.lasts_s)
            self._until_done(lambda: self.servers.create(topic))
        return f"{topic.name}, now {topic.topic_id}"

    def _leader_move(self, fault: Fault) -> str:
        topic, partition = self._chosen(fault, lambda one: not one.shape.unclean)
        assert self.java is not None
        first = 1 + int(fault.draws[1] * len(self.servers.kafka.brokers))
        order = [first, *(number for number in self.servers.kafka.brokers if number != first)]
        with self._broker:
            try:
                self.java.reassign(topic.name, partition, order)
                self.java.elect(topic.name, partition)
            except StackError as error:
                raise NotNow from error
        return f"{topic.name}-{partition} to {first}"

    def _replica_wipe(self, fault: Fault) -> str:
        broker = self._a_broker(fault)
        with self._broker:
            self.servers.wait_in_sync()
            broker.kill()
            broker.wipe()
            self._wait(fault.lasts_s)
            broker.start()
            self.servers.wait_in_sync()
        return broker.folder.name

    def _unclean(self, fault: Fault) -> str:
        """All but one replica die, the leader writes on and dies; one of those that lack its records must lead."""
        topic, partition = self._chosen(fault, lambda one: one.shape.unclean)
        with self._broker:
            self.servers.wait_in_sync()
            leader = self.servers.leader(topic.name, partition)
            others = [broker for broker in self.servers.kafka.brokers.values() if broker is not leader]
            for broker in others:
                broker.kill()
            self._wait(12 + fault.lasts_s)
            leader.kill()
            others[0].start()
            self._wait(fault.lasts_s)
            for broker in (*others[1:], leader):
                broker.start()
            self.servers.wait_in_sync()
        return f"{topic.name}-{partition} from {leader.folder.name}"

    @staticmethod
    def _until_done(call: Callable[[], object]) -> None:
        """Brokers that are away come back; what was asked twice may be done already."""
        deadline = time.monotonic() + limits.TOPIC_LOCK_S
        while True:
            try:
                call()
            except (KafkaException, StackError, TimeoutError) as error:  # the last: no answer to a future in time
                if isinstance(error, KafkaException) and error.args[0].name() in (
                    "UNKNOWN_TOPIC_OR_PART",
                    "TOPIC_ALREADY_EXISTS",
                ):
                    return
                if time.monotonic() > deadline:
                    raise StackError(str(error) or type(error).__name__) from error
                time.sleep(0.5)
            else:
                return


def _require(done: bool) -> None:
    if not done:
        raise StackError("not yet")
