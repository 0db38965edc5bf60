"""The servers of a matrix: one bridge and one stock broker, shared by all cases and mended between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.e2e_support import Pair
from tests.faults_matrix.fault_folder import FaultFolder
from tests.faults_matrix.grounds import Ground
from tierberg.stack.admin import Admin
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import tierberg

#: Short intervals: what a case waits for is what it is about.
SETTINGS: Mapping[str, Any] = {"publish_interval": "200ms", "reclaim_grace": "0s", "maintain_interval": "0s"}
BROKER = {"log.segment.delete.delay.ms": "500", "remote.log.manager.task.interval.ms": "300"}


@dataclass
class World:
    """Started and stopped as one."""

    folder: Path
    ground: Ground
    bridge: Bridge = field(init=False)
    broker: KafkaBroker = field(init=False)
    faults: FaultFolder = field(init=False)
    _shared: dict[str, Any] = field(init=False)

    def start(self) -> None:
        """All servers run when it returns; none is left running when it raises."""
        self.faults = FaultFolder(self.folder / "faults")
        self.faults.path.mkdir(parents=True)
        self.bridge = Bridge(self.folder / "bridge", {**self.ground.bridge_settings(), **SETTINGS})
        self._shared = dict(self.bridge.settings)
        self.bridge.process.env |= self.faults.environment
        plugin = tierberg(self.bridge.target, cluster_name="faults")
        self.broker = KafkaBroker(self.folder / "broker", plugin, BrokerOptions(properties=BROKER))
        try:
            self.ground.start()
            self.bridge.start()
            self.broker.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops all."""
        self.broker.stop()
        self.bridge.stop()
        self.ground.stop()

    @property
    def pair(self) -> Pair:
        """Broker and bridge, with a client that knows the broker as it runs now."""
        return Pair(self.broker, self.bridge, Admin(self.broker.bootstrap))

    def use(self, settings: Mapping[str, Any]) -> None:
        """The bridge runs with these beside the shared ones; restarted only if it does not yet."""
        wanted = {**self._shared, **settings}
        if wanted != self.bridge.settings:
            self.bridge.stop()
            self.bridge.settings = wanted
        self.mend()

    def mend(self) -> None:
        """Nothing is ordered, nobody is stopped, both servers run."""
        self.faults.clear()
        for server in (self.bridge, self.broker):
            if not server.process.alive:
                server.start()

    def command(self, name: str, *arguments: str) -> ServerProcess:
        """`tierberg …` on the bridge's settings, not yet started; it obeys orders."""
        program = self.bridge.process.argv[0]
        config = ["--config", str(self.bridge.folder / "tierberg.yaml")]
        env = {**self.bridge.process.env}
        log = self.folder / "commands.log"
        return ServerProcess(name, [program, *arguments, *config], log, cwd=self.folder, env=env)
