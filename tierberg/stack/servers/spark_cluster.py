"""Spark standalone as local processes: a master and workers, for jobs that `spark-submit` brings."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tierberg.stack.errors import StackError
from tierberg.stack.limits import SPARK_START_S
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

_EXECUTOR: Final = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def spark_home() -> Path:
    """Where PySpark lies with its jars and scripts. Raises StackError when it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StackError("the package pyspark is not installed")
    return Path(spec.origin).parent


class SparkCluster:
    """One master, and workers of one core each."""

    def __init__(self, folder: Path, workers: int = 2, memory_mib: int = 900) -> None:
        """Nothing is started yet."""
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        self.master = self._process("master", ["--host", LOOPBACK, "--port", str(self._port), "--webui-port", "0"])
        common = ["--host", LOOPBACK, "--cores", "1", "--memory", f"{memory_mib}m", "--webui-port", "0"]
        self.workers = [
            self._process(f"worker-{number}", [*common, "--work-dir", str(self._folder / f"work-{number}"), self.url])
            for number in range(workers)
        ]

    @property
    def url(self) -> str:
        """For `spark-submit --master`."""
        return f"spark://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Starts all; when it returns, every worker is registered.

        Raises:
            StackError: one did not start. None is left running.
        """
        try:
            self.master.start()
            self._wait_said(self.master, "I have been elected leader", 1)
            for worker in self.workers:
                worker.start()
            self._wait_said(self.master, "Registering worker", len(self.workers))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all."""
        for process in [*self.workers, self.master]:
            process.stop()

    def executors(self) -> list[int]:
        """Process ids of the executors that these workers run now."""
        return [pid for worker in self.workers if worker.alive for pid in _children(worker.pid) if _is_executor(pid)]

    def _wait_said(self, process: ServerProcess, text: str, times: int) -> None:
        def said() -> bool:
            return process.log.read_text(errors="replace").count(text) >= times

        wait_for(f"Spark's master to say {text!r}", said, SPARK_START_S)

    def _process(self, name: str, arguments: list[str]) -> ServerProcess:
        role = "master.Master" if name == "master" else "worker.Worker"
        argv = ["java", "-Xmx256m", "-cp", f"{spark_home()}/jars/*", f"org.apache.spark.deploy.{role}", *arguments]
        environment = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
        log = self._folder / f"{name}.log"
        return ServerProcess(f"spark-{name}", argv, log, cwd=self._folder, env=environment)


def _children(pid: int) -> list[int]:
    """Of a process, whichever of its threads started them (proc(5)); none when it has ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread, or all of it, has ended
            found += map(int, path.read_text().split())
    return found


def _is_executor(pid: int) -> bool:
    try:
        return _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
