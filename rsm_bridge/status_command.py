"""`tierberg status`: gather, judge, print. Exit codes: 0 nobody is needed, 1 somebody is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rsm_bridge.errors import SettingsError
from rsm_bridge.progress import assess
from rsm_bridge.progress_causes import CauseCode, Level
from rsm_bridge.progress_gather import Wanted, bridge_address, gather
from rsm_bridge.progress_print import as_json, as_text
from rsm_bridge.settings import Settings, load_settings

NO_BRIDGE = "none"


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """The command line. `bridge`: an address, `none`, or None for the one of the settings; `deadline` in seconds."""

    config: Path | None = None
    data_dir: Path | None = None
    topic: str | None = None
    bootstrap_server: str | None = None
    bridge: str | None = None
    accept: tuple[str, ...] = ()
    deadline: float = 30.0
    json: bool = False


def status(options: StatusOptions) -> tuple[str, bool]:
    """What to print, and whether somebody is needed.

    Raises:
        SettingsError: the configuration or a flag cannot be used.
    """
    accepted = _codes(options.accept)
    settings = load_settings(options.config, {"data_dir": options.data_dir})
    if options.bootstrap_server is not None:
        settings = _with_servers(settings, options.bootstrap_server)
    bridge = bridge_address(settings) if options.bridge is None else options.bridge
    wanted = Wanted(options.topic, None if bridge == NO_BRIDGE else bridge, options.deadline)
    report = assess(gather(settings, wanted))
    needed = report.level(accepted) is Level.PERSON
    if options.json:
        return as_json(report, accepted), needed
    return as_text(report, accepted, every_partition=options.topic is not None), needed


def _codes(words: Iterable[str]) -> tuple[CauseCode, ...]:
    known = {str(code): code for code in CauseCode}
    for word in words:
        if word not in known:
            raise SettingsError(f"--accept {word}: not a cause; docs/operations.md lists them")
    return tuple(known[word] for word in words)


def _with_servers(settings: Settings, servers: str) -> Settings:
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": servers})
    return settings.model_copy(update={"kafka": kafka})
