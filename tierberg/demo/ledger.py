"""The producer's own log: what was sent and where the broker says it is. Everything read back is compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierberg.demo.events import Event


@dataclass(slots=True)
class Ledger:
    """Events by partition and offset, committed and aborted apart.

    Attributes:
        committed: partition → offset → event, for what a reader of committed records must see, exactly.
        aborted: the same for events whose transaction was aborted.
    """

    committed: dict[int, dict[int, Event]] = field(default_factory=dict)
    aborted: dict[int, dict[int, Event]] = field(default_factory=dict)

    def add(self, offset: int, event: Event, *, committed: bool) -> None:
        """Note one acknowledged event.

        Raises:
            ValueError: the broker gave the same offset twice.
        """
        log = (self.committed if committed else self.aborted).setdefault(event.partition, {})
        if offset in log:
            raise ValueError(f"offset {offset} of partition {event.partition} was acknowledged twice")
        log[offset] = event

    def committed_count(self) -> int:
        """How many committed events there are."""
        return sum(map(len, self.committed.values()))

    def aborted_count(self) -> int:
        """How many aborted events there are."""
        return sum(map(len, self.aborted.values()))

    def payload_bytes(self) -> int:
        """Bytes of all keys, values and headers, committed and aborted."""
        return sum(_size(event) for event in self._all())

    def _all(self) -> Iterator[Event]:
        for world in (self.committed, self.aborted):
            for log in world.values():
                yield from log.values()


def _size(event: Event) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in event.headers)
    return len(event.key or b"") + len(event.value) + headers
