"""One `tierberg serve` as a local process, on its embedded store and catalog.

Its folder holds `tierberg.yaml`, `bridge.log` and everything it stores (`store/`, `warehouse/`, `catalog.db`). Ports
are found free when the object is made and kept across restarts, so that a broker finds it again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tierberg.stack.errors import StackError
from tierberg.stack.limits import BRIDGE_START_S, SCRAPE_S
from tierberg.stack.paths import BUILD
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for


class Bridge:
    """A bridge that can be started, stopped, killed, frozen and started again on the same data."""

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        """Nothing is written or started yet.

        Args:
            folder: also its `data_dir`.
            settings: keys of `tierberg.yaml` that win over ours.
        """
        self.folder = folder
        self.port, self.metrics_port = free_ports(2)
        self.settings: dict[str, Any] = {
            "data_dir": str(folder),
            "listen": self.target,
            "metrics_listen": f"{LOOPBACK}:{self.metrics_port}",
            **(settings or {}),
        }
        self._config = folder / "tierberg.yaml"
        argv = [str(Path(sys.executable).with_name("tierberg")), "serve", "--config", str(self._config)]
        # Compiled kernels are shared by all bridges of this checkout: a folder of its own would compile for a minute.
        env = {"NUMBA_CACHE_DIR": str(BUILD / "numba")}
        self.process = ServerProcess("bridge", argv, folder / "bridge.log", cwd=folder, env=env)

    @property
    def target(self) -> str:
        """What the shim dials."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and return when it has said that it is ready.

        Raises:
            StackError: it ended, or was not ready within BRIDGE_START_S; the message quotes its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(yaml.safe_dump(self.settings, sort_keys=False))
        self.process.start()
        wait_for("the bridge to be ready", self._ready, BRIDGE_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def metrics(self) -> dict[str, float]:
        """Its counters and gauges, each the sum over its labels, by the name in the page.

        They count from the last start.

        Raises:
            StackError: the page cannot be read.
        """
        totals: dict[str, float] = {}
        for name, _, value in self._samples():
            totals[name] = totals.get(name, 0.0) + value
        return totals

    def metric(self, name: str, **labels: str) -> float:
        """One counter or gauge, summed over all labels that are not named; 0 when there is none.

        Raises:
            StackError: the page cannot be read.
        """
        wanted = labels.items()
        return sum(value for found, has, value in self._samples() if found == name and wanted <= has.items())

    def _samples(self) -> list[tuple[str, dict[str, str], float]]:
        try:
            with urlopen(f"http://{LOOPBACK}:{self.metrics_port}/metrics", timeout=SCRAPE_S) as page:
                text = page.read().decode()
        except (URLError, OSError) as error:
            raise StackError(f"cannot read the bridge's metrics: {error}") from error
        families = text_string_to_metric_families(text)
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    def _ready(self) -> bool:
        self.process.require_alive()
        return "tierberg ready" in self.process.output() and accepts(self.port)
