"""The topics of a run, who may write to them when, and what may have left them.

A lock of each topic keeps records of a topic and of its successor apart: writers share it, a fault that deletes the
topic has it alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.limits import MEBIBYTE

_TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(MEBIBYTE),
    "segment.ms": "20000",
    "local.retention.ms": "15000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
_ODD = {"message.timestamp.after.max.ms": str(2**63 - 1), "segment.ms": str(2**62)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a topic is for.

    Attributes:
        partitions: how many.
        config: beside the usual.
        weight: share of the records.
        odd: records may have any timestamp.
        text: values are text.
        cut: deleteRecords and retention may take its records.
        kept: retention may take its records from Kafka; its table keeps every row.
        again: it is deleted and made again.
        unclean: elections may lose acknowledged records.
    """

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    odd: bool = False
    text: bool = False
    cut: bool = False
    kept: bool = False
    again: bool = False
    unclean: bool = False


SHAPES: Mapping[str, Shape] = {
    "plain": Shape(2, weight=2),
    "trans": Shape(2, weight=2),
    "odd": Shape(config=_ODD, odd=True),
    "append": Shape(config={"message.timestamp.type": "LogAppendTime"}),
    "text-a": Shape(text=True),
    "cut": Shape(2, weight=2, cut=True),
    "kept": Shape(kept=True),
    "again": Shape(again=True),
    "odd-cut": Shape(config=_ODD, odd=True, cut=True),
}
UNCLEAN: Mapping[str, Shape] = {
    "unclean": Shape(config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}, unclean=True),
}


class Gate:
    """Shared by writers, taken alone by who deletes."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sharing = 0
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._condition:
            while self._alone:
                self._condition.wait()
            self._sharing += 1
        try:
            yield
        finally:
            with self._condition:
                self._sharing -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self, timeout_s: float) -> Iterator[bool]:
        """Whether it could be had in time."""
        deadline = time.monotonic() + timeout_s
        with self._condition:
            while (self._alone or self._sharing) and time.monotonic() < deadline:
                self._condition.wait(max(0.0, deadline - time.monotonic()))
            got = not self._alone and not self._sharing
            self._alone = self._alone or got
        try:
            yield got
        finally:
            if got:
                with self._condition:
                    self._alone = False
                    self._condition.notify_all()


@dataclass(slots=True)
class Topic:
    """One topic, as it is now.

    Attributes:
        topic_id: as `partition.metadata` has it.
        former: ids it had before.
        deleted_below: by partition the highest offset that deleteRecords was asked for.
        retained: retention was at work on it.
    """

    name: str
    shape: Shape
    topic_id: str = ""
    former: list[str] = field(default_factory=list)
    deleted_below: dict[int, int] = field(default_factory=dict)
    retained: bool = False
    gate: Gate = field(default_factory=Gate)

    @property
    def config(self) -> dict[str, str]:
        return {**_TIERED, **self.shape.config}

    @property
    def partitions(self) -> range:
        return range(self.shape.partitions)


def hex_of(topic_id: str) -> str:
    """A topic id as 32 hexadecimal digits."""
    from base64 import urlsafe_b64decode

    return urlsafe_b64decode(topic_id + "==").hex()
