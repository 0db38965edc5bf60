"""A TCP proxy before an HTTP server that delays, refuses, cuts and loses requests: a store or a catalog on a bad day.

Clients that do not pipeline take turns with their server on a connection; so the first bytes after an answer begin a
request. Nothing is changed on the way and signatures stay right. It is a process of its own and reads its weather,
shares of 1 and seconds, from a JSON file at each request.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any, Literal

from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

_CHUNK = 256 * 1024
_DRAIN_S = 0.2
_Fate = Literal["pass", "full", "refuse", "cut", "lose"]
_ANSWERS = {"full": b"507 Insufficient Storage", "refuse": b"503 Service Unavailable"}


class FlakyProxy:
    """Fair until :meth:`set` says otherwise.

    Weather: `delay_s` before each request; shares `refuse` (503 in the server's place), `cut` (the connection ends
    before the server has the request), `lose` (the server has it, its answer is lost); `full`: writes get 507.
    """

    def __init__(self, folder: Path, upstream_port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self._weather = folder / "weather.json"
        self.set()
        argv = [sys.executable, __file__, str(self.port), str(upstream_port), str(self._weather)]
        env = {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = ServerProcess("flaky-proxy", argv, folder / "proxy.log", cwd=folder, env=env)

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def set(self, **weather: float) -> None:
        """From the next request on; what is not named is fair."""
        partial = self._weather.with_suffix(".partial")
        partial.write_text(json.dumps(weather))
        partial.replace(self._weather)

    def start(self) -> None:
        self.process.start()
        wait_for("the proxy", lambda: accepts(self.port), 30)

    def stop(self) -> None:
        self.process.stop()


class _Turns:
    """One connection of a client and the one to the server behind it."""

    def __init__(self, weather: Path) -> None:
        self._weather = weather
        self._answered = True
        self._lose = False

    async def requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, back: Any) -> None:
        while data := await source.read(_CHUNK):
            if self._answered:
                self._answered = False
                fate = await self._fate(data)
                if fate in _ANSWERS:
                    await _drain(source)
                    head = b"HTTP/1.1 " + _ANSWERS[fate] + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    back.write(head)
                    await back.drain()
                if fate in _ANSWERS or fate == "cut":
                    return
                self._lose = fate == "lose"
            sink.write(data)
            await sink.drain()

    async def answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            if self._lose:
                return
            self._answered = True
            sink.write(data)
            await sink.drain()

    async def _fate(self, data: bytes) -> _Fate:
        try:
            weather = json.loads(self._weather.read_text())
        except (OSError, ValueError):
            return "pass"
        await asyncio.sleep(weather.get("delay_s", 0.0))
        if weather.get("full") and data[:4] in (b"PUT ", b"POST"):
            return "full"
        drawn = random.random()
        for fate in ("refuse", "cut", "lose"):
            drawn -= weather.get(fate, 0.0)
            if drawn < 0:
                return fate
        return "pass"


async def _drain(source: asyncio.StreamReader) -> None:
    """Reads what the client still sends, so that it sees the answer."""
    try:
        while await asyncio.wait_for(source.read(_CHUNK), _DRAIN_S):
            pass
    except TimeoutError:
        return


async def _serve(port: int, upstream_port: int, weather: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turns, writers = _Turns(weather), [writer]
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(LOOPBACK, upstream_port)
            writers.append(upstream_writer)
            ways = [turns.requests(reader, upstream_writer, writer), turns.answers(upstream_reader, writer)]
            tasks = [asyncio.create_task(way) for way in ways]
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the server is away: the client sees its connection closed
        finally:
            for open_writer in writers:
                open_writer.close()

    server = await asyncio.start_server(client, LOOPBACK, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
