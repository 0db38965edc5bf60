"""`tierberg status`: gather, judge, print. Exit codes: 0 nobody is needed, 1 somebody is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import STATUS_ANSWER_SECONDS, STATUS_COPY_WATCH_SECONDS, STATUS_SERVER_WATCH_SECONDS
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.confirm import SERVERS, confirmed, unsure, watch
from rsm_bridge.status.cures import Called
from rsm_bridge.status.gather import Wanted, bridge_address, gather
from rsm_bridge.status.report import Accepted, Report
from rsm_bridge.status.text import as_json, as_text

NO_BRIDGE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOptions:
    """The command line. `bridge`: an address, `none`, or None for the one of the settings; `deadline` in seconds.

    every: all places and partitions, not the first ones. patience: longest pause before a second look, seconds; 0: an
    alarm is believed at first sight.
    """

    config: Path | None = None
    data_dir: Path | None = None
    topic: str | None = None
    bootstrap_server: str | None = None
    bridge: str | None = None
    accept: tuple[str, ...] = ()
    deadline: float = 30.0
    json: bool = False
    every: bool = False
    patience: float = STATUS_COPY_WATCH_SECONDS


def status(options: StatusOptions, say: Callable[[str], None] = lambda _: None) -> tuple[str, bool]:
    """What to print, and whether somebody is needed. `say` receives why it takes longer.

    Raises:
        SettingsError: the configuration or a flag cannot be used.
    """
    accepted = _accepted(options.accept)
    settings = load_settings(options.config, {"data_dir": options.data_dir})
    if options.bootstrap_server is not None:
        settings = _with_servers(settings, options.bootstrap_server)
    bridge = bridge_address(settings) if options.bridge is None else options.bridge
    wanted = Wanted(options.topic, None if bridge == NO_BRIDGE else bridge, options.deadline)
    report = _looked(settings, wanted, options.patience, accepted, say)
    needed = report.level(accepted) is Level.PERSON
    called = Called(options.config, options.data_dir, options.bootstrap_server, settings.kafka.bootstrap_servers)
    if options.json:
        return as_json(report, accepted, called), needed
    every = options.topic is not None
    return as_text(report, accepted, every_partition=every, every_place=options.every, called=called), needed


def _looked(
    settings: Settings, wanted: Wanted, patience: float, accepted: Accepted, say: Callable[[str], None]
) -> Report:
    """One look, or two where the first would call somebody for what may pass; three where the second could not look."""
    began = monotonic()
    first = assess(gather(settings, wanted))
    pause, doubtful = watch(first, accepted, settings.publish_interval)
    waited = monotonic() - began > STATUS_ANSWER_SECONDS
    if not patience or not doubtful or (waited and all(item.code in SERVERS for item in doubtful)):
        return first
    pause = min(pause, patience)
    codes = ", ".join(dict.fromkeys(str(item.code) for item in doubtful))
    say(f"{codes}: looking again in {pause:g} s, whether it passes")
    sleep(pause)
    second = assess(gather(settings, wanted))
    if not unsure(first, second):
        return confirmed(second, first)
    pause = min(STATUS_SERVER_WATCH_SECONDS, patience)
    say(f"a server did not answer the second look: looking again in {pause:g} s")
    sleep(pause)
    # What was seen twice was: that nobody could look in between takes nothing from it.
    return confirmed(assess(gather(settings, wanted)), first, second)


def _accepted(words: Iterable[str]) -> Accepted:
    """`code`, or `code:topic`.

    Raises:
        SettingsError: no such code; or a colon and no topic, as a script's empty variable makes it, which must not
            accept the cause for all topics.
    """
    known = {str(code): code for code in CauseCode}
    found: set[tuple[CauseCode, str | None]] = set()
    for word in words:
        code, of_one, topic = word.partition(":")
        if code not in known:
            raise SettingsError(f"--accept {word}: not a cause; docs/operations.md lists them")
        if of_one and not topic:
            raise SettingsError(
                f"--accept {word}: a topic follows the colon; without one it is `{code}`, for all topics"
            )
        found.add((known[code], topic if of_one else None))
    return Accepted(frozenset(found))


def _with_servers(settings: Settings, servers: str) -> Settings:
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": servers})
    return settings.model_copy(update={"kafka": kafka})
