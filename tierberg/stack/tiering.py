"""Broker settings that put a RemoteStorageManager behind a stock broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tierberg.stack.jars import local_tier_jars, shim_jar


@dataclass(frozen=True, slots=True)
class Plugin:
    """A RemoteStorageManager: its class, where its classes are, and its own settings, without `rsm.config.`."""

    class_name: str
    class_path: str
    settings: Mapping[str, str] = field(default_factory=dict)


def tierberg(bridge_target: str, *, cluster_name: str = "local", settings: Mapping[str, str] | None = None) -> Plugin:
    """Our shim, from its own folder and never from the broker's class path.

    Args:
        bridge_target: what the shim dials, for example `127.0.0.1:8270`.
        cluster_name: the cluster's name in the owner stamp of every table.
        settings: more keys of the shim.
    """
    return Plugin(
        "io.tierberg.rsm.TierbergRemoteStorageManager",
        str(shim_jar()),
        {"bridge.target": bridge_target, "cluster.name": cluster_name, **(settings or {})},
    )


def local_tier(folder: Path) -> Plugin:
    """Kafka's own LocalTieredStorage, which keeps segment files under `folder`: the yardstick."""
    return Plugin(
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        f"{local_tier_jars()}/*",
        {"dir": str(folder), "delete.on.close": "false"},
    )


def tiering_properties(plugin: Plugin, *, copies: int = 1) -> dict[str, str]:
    """The lines of `server.properties` that switch tiering on, with the intervals of a test machine.

    Args:
        plugin: what the broker loads.
        copies: replicas of the topic in which brokers note what is in the remote store.
    """
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": plugin.class_name,
        "remote.log.storage.manager.class.path": plugin.class_path,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(copies),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "300",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        **{f"rsm.config.{key}": value for key, value in plugin.settings.items()},
    }
