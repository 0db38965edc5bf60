"""Bridges for tests: in this process on a thread, or as a real process that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import structlog

from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.logs import logger
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority
from rsm_bridge.serving.service import Running, running_bridge
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.segments.running_copies import RunningCopies


def test_settings(data_dir: Path, **overrides: Any) -> Settings:
    values: dict[str, Any] = {
        "data_dir": data_dir,
        "listen": "127.0.0.1:0",
        "publish_interval": "100ms",
        "reclaim_grace": "0s",
    }
    return load_settings(None, {**values, **overrides})


test_settings.__test__ = False  # type: ignore[attr-defined]


def publisher_of(settings: Settings, log: structlog.typing.FilteringBoundLogger | None = None) -> Publisher:
    """A publisher by itself, not started."""
    return Publisher(
        settings=settings,
        store=open_store(settings),
        metrics=Metrics(),
        log=log or logger("test"),
        copies=RunningCopies(),
        yield_to_fetches=FetchPriority().yield_to_fetches,
    )


@contextmanager
def bridge_thread(settings: Settings) -> Iterator[Running]:
    """A bridge on an event loop of its own thread."""
    started: list[Running] = []
    failures: list[BaseException] = []
    ready = threading.Event()
    stop: list[Any] = []

    async def serve() -> None:
        end = asyncio.Event()
        stop.extend((asyncio.get_running_loop(), end))
        try:
            async with running_bridge(settings) as running:
                started.append(running)
                ready.set()
                await end.wait()
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            if error not in failures:
                failures.append(error)

    thread = threading.Thread(target=run, name="bridge")
    thread.start()
    assert ready.wait(60)
    if not started:
        thread.join(60)
        raise failures[0]
    try:
        yield started[0]
    finally:
        stop[0].call_soon_threadsafe(stop[1].set)
        thread.join(180)  # a kernel that is being compiled is finished
        assert not thread.is_alive()


class BridgeProcess:
    """`tierberg serve` as a process."""

    def __init__(self, *arguments: str, fault: str = "", expect_ready: bool = True) -> None:
        environment = {**os.environ, "TIERBERG_FAULT": fault}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tierberg.cli", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.address = ""
        self.ready_line = ""
        self._errors: list[str] = []
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()
        if expect_ready:
            assert self.process.stdout is not None
            self.ready_line = self.process.stdout.readline()
            assert self.ready_line.startswith("tierberg ready"), self.errors()
            words = dict(word.split("=", 1) for word in self.ready_line.split()[2:])
            self.address = words["listen"]

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def errors(self) -> str:
        """Standard error so far; all of it once the process has ended."""
        if self.process.poll() is not None:
            self._drain.join(5)
        return "".join(self._errors)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                self._drain.join(5)
                pipe.close()
