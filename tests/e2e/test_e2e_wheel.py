"""The wheel in an environment of its own, outside of any checkout: commands, bridge, and its jar in a stock broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.e2e_support import Rec, Sender, read, same
from tierberg.stack.admin import TIERED, Admin
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import Plugin
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
UV = ROOT / ".tools" / "uv" / "bin" / "uv"


class Installed:
    """The wheel's command in a folder that knows nothing of the project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run([str(UV), "build", "--wheel", "--out-dir", str(folder / "dist")], cwd=ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        self._run([sys.executable, "-m", "venv", str(folder / "venv")], cwd=folder)
        self._run([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", str(wheel)], cwd=folder)
        self.command = folder / "venv" / "bin" / "tierberg"

    def _run(self, argv: list[str], cwd: Path) -> str:
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def __call__(self, *arguments: str) -> str:
        return self._run([str(self.command), *arguments], cwd=self.folder)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("wheel")
    yield Installed(folder)
    shutil.rmtree(folder / "venv")


def test_it_says_what_it_can(installed: Installed) -> None:
    assert "replay-dead-letters" in installed("--help")
    assert installed("version") == f"tierberg {VERSION}\n"
    found = {path.name for path in (installed.folder / "venv").glob("lib/*/site-packages/*") if path.is_dir()}
    assert found.isdisjoint({"demo", "stack", "tests", "benchmarks"})


def test_its_bridge_and_its_jar_keep_a_topic(installed: Installed) -> None:
    installed("warmup")
    jar = Path(installed("jar", "--output", "plugin").strip())
    (port,) = free_ports(1)
    data, log = installed.folder / "data", installed.folder / "bridge.log"
    argv = [str(installed.command), "serve", "--data-dir", str(data), "--listen", f"{LOOPBACK}:{port}"]
    bridge = ServerProcess("bridge", argv, log, cwd=installed.folder)
    settings = {"bridge.target": f"{LOOPBACK}:{port}", "cluster.name": "wheel"}
    plugin = Plugin("io.tierberg.rsm.TierbergRemoteStorageManager", str(jar), settings)
    broker = KafkaBroker(installed.folder / "broker", plugin, BrokerOptions())
    try:
        bridge.start()
        wait_for("the bridge", lambda: "tierberg ready" in log.read_text(encoding="utf-8"), 60)
        broker.start()
        Admin(broker.bootstrap).create_topic("orders", 1, TIERED)
        sender = Sender(broker, "orders", 0)
        sender.send(Rec(b"%d" % number, b"order %d" % number * 80) for number in range(3000))
        wait_for("the table", (data / "warehouse" / "kafka" / "orders").is_dir, 120)
        same(read(broker, "orders", 0), sender.log.committed)
        status = ["status", "orders", "--data-dir", str(data), "--bridge", f"{LOOPBACK}:{port}"]
        wait_for("its status", lambda: "orders" in installed(*status), 60)
        assert "no damage" in installed("verify", "--data-dir", str(data))
    finally:
        broker.stop()
        bridge.stop()
