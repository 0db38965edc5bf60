"""`tierberg config check`: ask Kafka and the registry, judge, print."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.config.tls_pair import require_pair
from rsm_bridge.errors import SettingsError
from rsm_bridge.kafka_names import is_topic_name
from rsm_bridge.limits import STATUS_KAFKA_SECONDS
from rsm_bridge.metrics.progress.facts import KafkaFacts
from rsm_bridge.metrics.progress.kafka import KafkaClientMissingError, KafkaSource
from rsm_bridge.status.check.report import Remark
from rsm_bridge.status.check.rules import check
from rsm_bridge.status.check.schemas import SchemaChecks
from rsm_bridge.status.check.text import as_json, as_text
from rsm_bridge.status.cures import Called
from rsm_bridge.status.within import within
from rsm_bridge.storage.opening import open_store
from rsm_bridge.values.registry.registry import SchemaRegistry

#: A folder's store is made by opening it, and one in memory has no options.
_OWN: Final = frozenset({"file", "memory"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The command line. `topics`: only these; `ask_kafka` False: go by them alone."""

    config: Path | None = None
    data_dir: Path | None = None
    topics: tuple[str, ...] = ()
    bootstrap_server: str | None = None
    ask_kafka: bool = True
    json: bool = False


def check_config(options: CheckOptions) -> tuple[str, bool]:
    """What to print, and whether something is wrong.

    Raises:
        SettingsError: the configuration or a flag cannot be used, or there is nothing to check.
    """
    for name in options.topics:
        if not is_topic_name(name):
            raise SettingsError(
                f"{name!r}: Kafka has no topic of such a name; it takes up to 249 letters, digits, `.`, `_` and `-`"
            )
    settings = load_settings(options.config, {"data_dir": options.data_dir})
    require_pair(settings)
    if settings.store is not None and urlsplit(settings.store.url).scheme not in _OWN:
        open_store(settings)  # asks no server; its client knows which options there are
    servers = options.bootstrap_server or settings.kafka.bootstrap_servers
    if not options.ask_kafka:
        servers = None
    if servers is None and not options.topics:
        raise SettingsError(
            "no topics to check: name some, or say where Kafka is with --bootstrap-server or kafka.bootstrap_servers"
        )
    kafka, said = (None, []) if servers is None else _kafka(settings, servers)
    with contextlib.ExitStack() as stack:
        registry: SchemaRegistry | None = None
        if settings.schema_registry is not None:
            registry = SchemaRegistry(settings.schema_registry)
            stack.callback(registry.close)
        if settings.tls is not None and settings.tls.everybody_may_write:
            text = "any certificate of client_ca_file may copy, read and delete every topic; name yours in tls.clients"
            said = [*said, Remark("warning", f"tls: {text}")]
        called = Called(options.config, options.data_dir, options.bootstrap_server, servers)
        report = check(settings, kafka, options.topics, SchemaChecks(registry), said, called)
    return as_json(report) if options.json else as_text(report), report.wrong


def _kafka(settings: Settings, servers: str) -> tuple[KafkaFacts | None, list[Remark]]:
    properties = {name: secret.get_secret_value() for name, secret in settings.kafka.properties.items()}
    source = KafkaSource({**properties, "bootstrap.servers": servers}, time.monotonic() + STATUS_KAFKA_SECONDS)
    try:
        return within(STATUS_KAFKA_SECONDS + 1, "brokers", source.describe), []
    except KafkaClientMissingError as error:
        return None, [Remark("error", f"Kafka was not asked: {error}; pip install 'tierberg[kafka]'")]
    except Exception as error:  # noqa: BLE001 - whatever the client raises
        advice = "check kafka.bootstrap_servers and kafka.properties, or name topics and pass --no-kafka"
        return None, [Remark("error", f"the brokers at {servers} do not answer: {error}; {advice}")]
