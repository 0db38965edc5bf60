"""What a demo leaves behind: servers that go on running when that was asked for, and none when it is ended early."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rsm_bridge.errors import SettingsError
from rsm_bridge.shell_words import quoted
from rsm_bridge.storage.local import FolderLock
from tierberg.demo.errors import DemoError
from tierberg.demo.servers import AVRO_TOPIC, PROJECTION, TABLES, TOPIC, Servers, config_file

#: What a terminal or a supervisor sends. An interrupt already raises KeyboardInterrupt.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the block, so that it stops its servers; then SystemExit of 128 + the number."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_running(folder: Path, servers: Path) -> None:
    """Check that the bridge an earlier demo left running in `servers` is not running any more.

    Raises:
        DemoError: it is; `folder` is what the message calls it.
    """
    if not servers.is_dir():
        return
    try:
        FolderLock(servers).close()
    except SettingsError as error:
        raise DemoError(f"servers of an earlier `tierberg demo --keep` run in {folder}; stop them first") from error


def own_command() -> str:
    """`tierberg` as a shell finds it from here: by PATH, else the program beside this Python."""
    program = Path(sys.executable).with_name("tierberg")
    found = shutil.which("tierberg")
    if found is not None and Path(found).resolve() == program.resolve():
        return "tierberg"
    try:
        return quoted(program.relative_to(Path.cwd()))
    except ValueError:
        return quoted(program)


def how_to_use(servers: Servers) -> str:
    """Where the servers are, commands that consume, query, repartition and stop them; not folded."""
    broker, bridge, registry = servers.broker, servers.bridge, servers.registry
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "look", "auto.offset.reset": "earliest"}
    consume = (
        f"from confluent_kafka import Consumer; c = Consumer({settings}); c.subscribe(['{TOPIC}']); "
        "[print(m.partition(), m.offset(), m.key(), m.value()) for m in c.consume(5, 30)]; c.close()"
    )
    catalog = f"SqlCatalog('tierberg', uri='sqlite:///{bridge.folder / 'catalog.db'}')"
    statement = f"SELECT carrier, count(*), avg(dep_delay) FROM {AVRO_TOPIC} GROUP BY ALL ORDER BY ALL"
    query = (
        f"from pyiceberg.catalog.sql import SqlCatalog; t = {catalog}.load_table('{TABLES[AVRO_TOPIC]}'); "
        f"t.scan().to_duckdb('{AVRO_TOPIC}').sql('{statement}').show()"
    )
    return f"""The servers go on running:
  Kafka    {broker.bootstrap}, topics {TOPIC} and {AVRO_TOPIC}; log {broker.process.log}
  bridge   {bridge.target}, metrics http://127.0.0.1:{bridge.metrics_port}/metrics; log {bridge.process.log}
  registry {registry.url}; log {registry.process.log}
Consume from Kafka:
  {sys.executable} -c "{consume}"
Query a table:
  {sys.executable} -c "{query}"
Bring the projection ({PROJECTION}) up to date:
  {own_command()} repartition {TOPIC} --config {config_file(servers)}
Stop them:
  kill {broker.process.pid} {bridge.process.pid} {registry.process.pid}"""
