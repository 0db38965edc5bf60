"""`tierberg serve`: warm up, listen, say so in one line, run until a signal."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from iceberg_catalog.connect.redaction import remember_settings
from rsm_bridge.config.extras import require_extras
from rsm_bridge.config.secrets import settings_secrets
from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.config.tls_pair import require_pair
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import MIB, START_STOP_SECONDS_MAX, STOP_SECONDS_MAX
from rsm_bridge.logs import configure_logs, drain_logs, logger
from rsm_bridge.serving.kernel_cache import kernel_cache, warmed

_M_ARENA_MAX = -8  # glibc, malloc.h
_HEAPS_MAX = 2
_M_MMAP_THRESHOLD = -3
_OWN_PAGES_BYTES = 4 * MIB


def serve_forever(config: Path | None, overrides: dict[str, Any], log_level: str) -> None:
    """Returns after SIGTERM, SIGINT or SIGHUP and a graceful stop.

    Ends the process when that takes over STOP_SECONDS_MAX; START_STOP_SECONDS_MAX before the bridge is ready.

    Raises:
        SettingsError: something that was asked for cannot be used.
    """
    if log_level not in ("debug", "info", "warning", "error"):
        raise SettingsError(f"--log-level {log_level}: use debug, info, warning or error")
    # Until the loop hears it; the first process of a container ignores what nobody asked for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = load_settings(config, overrides)
    require_pair(settings)
    require_extras(settings)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data_dir: {error}") from error
    secrets = settings_secrets(settings)
    remember_settings(secrets)
    configure_logs(log_level, secrets)
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(kernel_cache(settings.data_dir, logger("bridge").warning))
    _give_memory_back()
    try:
        asyncio.run(_serve(settings))
    finally:
        drain_logs()


def _favour_calls() -> None:
    """Keeps the interpreter's own pauses out of the calls.

    A full collection walks every module's objects, 0.1 s with all libraries loaded, while nothing else runs: what
    exists now lives as long as the process and is taken out of it. And a thread that asks for the interpreter's lock
    gets it from a busy one after 1 ms instead of 5: a fetch crosses several threads.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(0.001)


def _give_memory_back() -> None:
    """All threads allocate from a few heaps: with one for each, as glibc likes, freed megabytes lie idle in them.

    And what is large never comes from a heap: left alone glibc raises that bound to 32 MiB, and 200 MiB and more of
    what copies had lay idle between what lives longer. It costs 5 % of a copy's CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have other allocators
        mallopt(_M_ARENA_MAX, _HEAPS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)


async def _serve(settings: Settings) -> None:
    # Imported late: numba reads its cache folder from the environment when it is loaded.
    from converter.segment.warmup import warm
    from rsm_bridge.serving.service import running_bridge

    stop, ready = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        if not ready.is_set():
            _leave_after(START_STOP_SECONDS_MAX, "stopped before the bridge was ready", unless=ready)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup asks
            loop.add_signal_handler(number, end)

    def compiled() -> None:
        warm()
        if settings.may_type:
            from converter.values.proof.warmup import warm_values

            warm_values()

    def prepare(compiling: threading.Event) -> None:
        warmed(Path(os.environ["NUMBA_CACHE_DIR"]), compiled, logger("bridge"), compiling)
        _favour_calls()

    async with running_bridge(settings, prepare) as bridge:
        ready.set()
        found = await asyncio.to_thread(bridge.reach.first_words)
        said = (
            f"tierberg ready listen={bridge.address} metrics={bridge.metrics_address or '-'} "
            f"data={settings.data_dir.resolve()} {found}\n"
        )
        # Nobody has to read it, and who does may stop: the bridge does not wait for that.
        threading.Thread(target=_say, args=(said,), daemon=True).start()
        await stop.wait()
        logger("bridge").info("stopping")
        _leave_after(STOP_SECONDS_MAX, "stopped in the middle of requests that hang")


def _say(line: str) -> None:
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError as error:
        logger("bridge").warning("the ready line could not be written", error=str(error))


def _leave_after(seconds: float, words: str, unless: threading.Event | None = None) -> None:
    """Ends the process when stopping takes longer.

    A compiler cannot be interrupted, and a request that hangs in store or catalog has its own time-outs. What it
    was for is as after a kill: the next start finds it.
    """

    def leave() -> None:
        if unless is None or not unless.is_set():
            logger("bridge").warning(words)
            drain_logs()
            os._exit(0)

    watch = threading.Timer(seconds, leave)
    watch.daemon = True
    watch.start()
