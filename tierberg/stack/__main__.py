"""`python -m stack`: the whole topology as local processes, until Ctrl-C. What docker-compose.yml describes.

An S3 server, a REST catalog, a bridge that uses both, a stock broker with the plugin, and Trino if asked for; all on
loopback. The data folder keeps everything, so the next start goes on where this one ended; ports are new each time.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tierberg.stack.errors import StackError
from tierberg.stack.jars import KAFKA_VERSION, KAFKA_VERSIONS, require_kafka
from tierberg.stack.jdk import require_java
from tierberg.stack.lake import Lake
from tierberg.stack.limits import WATCH_S
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.servers.trino import TrinoServer
from tierberg.stack.tiering import tierberg


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the stack; returns the exit code: 1 when a server did not start or ended by itself."""
    parser = argparse.ArgumentParser("python -m stack", description="The whole topology as local processes.")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("stack-data"), help="folder of all servers' data and logs"
    )
    parser.add_argument(
        "--kafka-version", default=KAFKA_VERSION, help=f"of the stock broker: {' or '.join(KAFKA_VERSIONS)}"
    )
    parser.add_argument("--embedded", action="store_true", help="no S3 server and no REST catalog: the bridge's own")
    parser.add_argument("--trino", action="store_true", help="a Trino server too; the first use fetches 821 MB")
    arguments = parser.parse_args(argv)
    if arguments.trino and arguments.embedded:
        parser.error("--trino needs the REST catalog: it cannot read what is embedded")
    try:
        require_kafka(arguments.kafka_version)
        require_java()
    except StackError as error:
        parser.error(str(error))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with ExitStack() as servers:
            running = _start(servers, arguments)
            _say("ready; Ctrl-C stops everything")
            while not stop.wait(WATCH_S):
                for process in running:
                    process.require_alive()
            _say("stopping")
    except StackError as error:
        sys.stderr.write(f"stack: {error}\n")
        return 1
    return 0


def _start(servers: ExitStack, arguments: argparse.Namespace) -> list[ServerProcess]:
    """Starts the servers one after another; `servers` stops what was started, in reverse."""
    running: list[ServerProcess] = []
    settings: dict[str, Any] = {}
    folder: Path = arguments.data_dir.resolve()
    if not arguments.embedded:
        lake = Lake(folder)
        servers.callback(lake.stop)
        lake.start()
        running += [lake.s3.process, lake.catalog.process]
        settings = lake.bridge_settings()
        _say(f"S3         {lake.s3.endpoint}  keys {lake.s3.access_key} / {lake.s3.secret_key}")
        _say(f"catalog    {lake.catalog.uri}  (Iceberg REST)")
        if arguments.trino:
            running.append(_start_trino(servers, lake, folder / "trino"))
    bridge = Bridge(folder / "bridge", settings)
    servers.callback(bridge.stop)
    bridge.start()
    _say(f"bridge     {bridge.target}  metrics http://127.0.0.1:{bridge.metrics_port}/metrics")
    plugin = tierberg(bridge.target, cluster_name="stack")
    broker = KafkaBroker(folder / "broker", plugin, BrokerOptions(version=arguments.kafka_version))
    servers.callback(broker.stop)
    broker.start()
    _say(f"broker     {broker.bootstrap}  Kafka {arguments.kafka_version}; make topics with remote.storage.enable=true")
    return [*running, bridge.process, broker.process]


def _start_trino(servers: ExitStack, lake: Lake, folder: Path) -> ServerProcess:
    server = TrinoServer(folder, lake.catalog.uri, lake.warehouse)
    servers.callback(server.stop)
    server.start()
    _say(f"trino      {server.uri}  catalog lake, schema kafka")
    return server.process


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
