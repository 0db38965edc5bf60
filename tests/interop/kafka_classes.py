"""Segments written and read by Kafka's own classes, in a Java process that answers line by line.

The program and the two forms of its input, a segment's specification and the dump, are described in
`java/src/main/java/io/tierberg/interop/`: `SegmentSpec`, `Dump`. It is built once, by Maven, into `java/target/`.

```python
with KafkaClasses() as kafka:
    segment = kafka.write("name seed=7 codec=zstd kinds=transactional,marker", folder)
    again = kafka.read(path_of_record_batches)
```
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROJECT = Path(__file__).parent / "java"
BUILD_TIMEOUT_S = 300
COMMAND_TIMEOUT_S = 120
HEAP_MIB = 512


class KafkaClassesError(Exception):
    """Kafka's classes refused the bytes (bad checksum, cut batch, …), or the program could not be built or run."""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as Kafka's classes read it; header names as UTF-8."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """A batch as Kafka's classes read it.

    `position` and `size` are bytes in the file, `last_offset` is inclusive, `count` is None for compressed batches of
    magic 0 and 1, `timestamp_type` is NoTimestampType, CreateTime or LogAppendTime, `crc` is unsigned.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    count: int | None
    codec: str
    timestamp_type: str
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    partition_leader_epoch: int
    delete_horizon: int | None
    crc: int
    records: tuple[KafkaRecord, ...]


@dataclass(frozen=True, slots=True)
class KafkaSegment:
    """All batches of a file, and what a broker's metadata would say of it; `end_offset` is inclusive."""

    size: int
    start_offset: int
    end_offset: int
    max_timestamp: int
    leader_epochs: tuple[tuple[int, int], ...]
    batches: tuple[KafkaBatch, ...]

    @property
    def records(self) -> list[KafkaRecord]:
        """The records of all batches in order."""
        return [record for batch in self.batches for record in batch.records]


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment's files as a broker would have them: log, transaction index (None: no aborts), producer snapshot."""

    log: Path
    transaction_index: Path | None
    producer_snapshot: Path
    content: KafkaSegment


class KafkaClasses:
    """The Java process. Not for use by several threads. Raises KafkaClassesError only."""

    def __init__(self) -> None:
        _build()
        if (java := shutil.which("java")) is None:
            raise KafkaClassesError("no java on the PATH")
        classpath = f"{PROJECT / 'target' / 'classes'}{os.pathsep}{PROJECT / 'target' / 'lib'}/*"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [java, f"-Xmx{HEAP_MIB}m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "io.tierberg.interop.Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
        self._process.stdout.close()
        self._errors.close()

    def write(self, spec: str, folder: Path) -> WrittenSegment:
        """Writes the segment of one specification line into `folder`."""
        return self.write_all([spec], folder)[0]

    def write_all(self, specs: list[str], folder: Path) -> list[WrittenSegment]:
        """Writes one segment for each specification line into `folder`; their names must differ."""
        file = folder / "segments.spec"
        file.write_text("\n".join(specs))
        self._command("write", file, folder)
        return [_written(folder, spec.split()[0]) for spec in specs]

    def read(self, file: Path) -> KafkaSegment:
        """Reads a file of record batches; every batch's CRC is verified."""
        with tempfile.NamedTemporaryFile(suffix=".dump") as dump:
            self._command("read", file, Path(dump.name))
            return read_dump(Path(dump.name))

    def _command(self, verb: str, *arguments: Path) -> None:
        line = " ".join([verb, *(str(path.absolute()) for path in arguments)])
        if line.count(" ") != len(arguments) or "\n" in line:
            raise KafkaClassesError(f"paths must not hold spaces: {line}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError as e:
            raise KafkaClassesError(self._died()) from e
        answer = self._answer()
        if answer != "ok":
            raise KafkaClassesError(answer.removeprefix("error ") or self._died())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(COMMAND_TIMEOUT_S):
                self._process.kill()
                raise KafkaClassesError(f"no answer within {COMMAND_TIMEOUT_S} s")
        return self._process.stdout.readline().decode().rstrip("\n")

    def _died(self) -> str:
        self._errors.seek(0)
        return "the Java process ended: " + self._errors.read().decode(errors="replace")[-2000:]


def read_dump(path: Path) -> KafkaSegment:
    """Parses a dump."""
    batches: list[tuple[dict[str, Any], list[KafkaRecord]]] = []
    with path.open() as lines:
        for line in lines:
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "batch":
                batches.append((entry, []))
            elif kind == "record":
                batches[-1][1].append(_record(entry))
            else:
                entry["leader_epochs"] = tuple((epoch, start) for epoch, start in entry["leader_epochs"])
                return KafkaSegment(batches=tuple(KafkaBatch(**b, records=tuple(r)) for b, r in batches), **entry)
    raise KafkaClassesError(f"{path}: the dump is cut")


def _record(entry: dict[str, Any]) -> KafkaRecord:
    return KafkaRecord(
        offset=entry["offset"],
        timestamp=entry["timestamp"],
        sequence=entry["sequence"],
        key=_bytes(entry["key"]),
        value=_bytes(entry["value"]),
        headers=tuple((bytes.fromhex(name), _bytes(value)) for name, value in entry["headers"]),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _written(folder: Path, name: str) -> WrittenSegment:
    index = folder / f"{name}.txnindex"
    return WrittenSegment(
        log=folder / f"{name}.log",
        transaction_index=index if index.exists() else None,
        producer_snapshot=folder / f"{name}.snapshot",
        content=read_dump(folder / f"{name}.dump"),
    )


def _build() -> None:
    """Builds the program unless its jar is newer than all its sources; one process at a time."""
    target = PROJECT / "target"
    target.mkdir(exist_ok=True)
    with (target / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = [PROJECT / "pom.xml", *PROJECT.glob("src/**/*.java")]
        built = next(target.glob("tierberg-interop-*.jar"), None)
        if built is not None and built.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
            return
        if (maven := shutil.which("mvn")) is None:
            raise KafkaClassesError("no mvn on the PATH")
        command = [maven, "-q", "-B", "-f", str(PROJECT / "pom.xml"), "package"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise KafkaClassesError(f"mvn failed: {done.stdout[-2000:]}")
