"""A TCP proxy that lets every request wait before it reaches a server: a store far away.

Clients of HTTP/1.1 that do not pipeline, as those of object stores do, take turns with their server on a connection; so
the first bytes after an answer begin a request, whatever it says. Nothing is parsed and signatures stay right. It is
a process of its own, so that it shares no lock with clients in the test.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

_CHUNK = 256 * 1024


class SlowServer:
    """The proxy before a server on `upstream_port` of loopback; without delay until it is given one."""

    def __init__(self, folder: Path, upstream_port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self._delay = folder / "delay"
        self.set_delay(0)
        argv = [sys.executable, __file__, str(self.port), str(upstream_port), str(self._delay)]
        # It is started as a file: the project is found from there.
        env = {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = ServerProcess("slow-server", argv, folder / "slow.log", cwd=folder, env=env)

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def set_delay(self, seconds: float) -> None:
        """What every request waits from now on."""
        partial = self._delay.with_suffix(".partial")
        partial.write_text(str(seconds))
        partial.replace(self._delay)

    def start(self) -> None:
        self.process.start()
        wait_for("the slow server", lambda: accepts(self.port), 30)

    def stop(self) -> None:
        self.process.stop()


class _Turns:
    """One connection of a client and the one to the server behind it."""

    def __init__(self, delay: Path) -> None:
        self._delay = delay
        self._answered = True

    async def requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            if self._answered:
                self._answered = False
                await asyncio.sleep(float(self._delay.read_text()))
            sink.write(data)
            await sink.drain()

    async def answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            self._answered = True
            sink.write(data)
            await sink.drain()


async def _serve(port: int, upstream_port: int, delay: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turns, writers = _Turns(delay), [writer]
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(LOOPBACK, upstream_port)
            writers.append(upstream_writer)
            ways = [turns.requests(reader, upstream_writer), turns.answers(upstream_reader, writer)]
            # Either side may close; nothing is left to say then.
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
