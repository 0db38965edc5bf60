"""A Kafka cluster as local processes: one controller and some brokers, each of which can be killed, wiped and revived.

The controller is a node of its own, so that any number of brokers may be down at a time and the others still get
leaders. It is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tierberg.stack.jars import KAFKA_VERSION
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker, KafkaNode, new_cluster_id
from tierberg.stack.tiering import Plugin

_CONTROLLER = 100
_HEAP = "256m"


class KafkaCluster:
    """One controller and `len(brokers)` brokers.

    Attributes:
        brokers: by node id, from 1 on.
        version: of all nodes.
    """

    def __init__(
        self,
        folder: Path,
        plugin: Plugin,
        *,
        brokers: int = 3,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        """Nothing is written or started yet.

        Args:
            folder: each node gets a folder in it.
            plugin: of every broker.
            brokers: how many; also the replicas of Kafka's own topics. Each has two log folders.
            version: of the jars.
            properties: of every node, over ours.
            features: levels to format with.
        """
        self.version = version
        self._cluster_id = new_cluster_id()
        self._features = dict(features or {})
        self._properties = dict(properties or {})
        self._copies = brokers
        self._plugin = plugin
        self._controller = self._node(folder, _CONTROLLER, None)
        controller = self._controller.controller
        self.brokers = {number: self._node(folder, number, controller) for number in range(1, brokers + 1)}

    @property
    def bootstrap(self) -> str:
        """What clients connect to: every broker, as any may be down."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start the controller, then the brokers at once; when it returns, all of them answer.

        Raises:
            StackError: one did not. None is left running.
        """
        try:
            self._controller.start()
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(KafkaBroker.start, self.brokers.values()))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the brokers at once, then the controller; kill what takes too long."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.stop, self.brokers.values()))
        self._controller.stop()

    def _node(self, folder: Path, number: int, controller: str | None) -> KafkaBroker:
        node = KafkaNode(
            number=number,
            roles=("broker",) if controller else ("controller",),
            cluster_id=self._cluster_id,
            controller=controller,
            copies=self._copies,
            log_folders=2 if controller else 1,
            features=self._features,
        )
        options = BrokerOptions(version=self.version, heap=_HEAP, properties=self._properties)
        # The controller gets the plugin's settings too: it refuses tiered topics when it does not know of tiering.
        return KafkaBroker(folder / f"node-{number}", self._plugin, options, node)
