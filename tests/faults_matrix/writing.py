"""What a case writes: plain and transactional records, aborted ones too, and transactions that span segments."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from tests.e2e.e2e_support import Log, Rec, Sender
from tierberg.stack.admin import Admin
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.waiting import wait_for

_VALUE_BYTES = 800
_MARKERS_S = 30
#: More than a segment of 1 MiB, wherever it begins.
_A_SEGMENT = 1700
_numbers = itertools.count()


def records(draw: random.Random, count: int) -> list[Rec]:
    """Keys, headers and values of all kinds; values do not compress."""

    def one() -> Rec:
        value = draw.choice([None, b"", *(draw.randbytes(_VALUE_BYTES) for _ in range(8))])
        headers = tuple((f"h{number}", draw.choice([None, b"v"])) for number in range(draw.randrange(3)))
        return Rec(
            draw.choice([None, b"k", draw.randbytes(8)]), value, headers, 1_700_000_000_000 + draw.randrange(10**6)
        )

    return [one() for _ in range(count)]


@dataclass(slots=True)
class Writing:
    """All that was sent to partition 0 of one topic, by offset."""

    broker: KafkaBroker
    topic: str
    log: Log = field(default_factory=Log)
    _draw: random.Random = field(default_factory=lambda: random.Random(7))

    def segments(self) -> None:
        """Three segments. One aborted and one committed transaction begin in one segment and end in the next."""
        plain, transactional = self._senders()
        plain.send(records(self._draw, 300))
        transactional.transaction(records(self._draw, 50), commit=True)
        transactional.transaction(records(self._draw, 50), commit=False)
        for commit in (False, True):
            transactional.producer.begin_transaction()
            transactional.send(records(self._draw, 40), committed=commit)
            plain.send(records(self._draw, _A_SEGMENT))
            transactional.send(records(self._draw, 40), committed=commit)
            if commit:
                transactional.producer.commit_transaction(60)
            else:
                transactional.producer.abort_transaction(60)
        plain.send(records(self._draw, 100))
        self._note(plain, transactional)

    def more(self) -> None:
        """A few records behind, so that tiering and publishing have to go on."""
        plain, transactional = self._senders()
        plain.send(records(self._draw, 50))
        transactional.transaction(records(self._draw, 20), commit=False)
        transactional.transaction(records(self._draw, 20), commit=True)
        self._note(plain, transactional)

    def _wait_markers(self) -> None:
        """Until every transaction has its marker in the log.

        Kafka writes markers after it has told the producer of the end. A broker that dies in between may take, when it
        is back, partitions without a leader for deleted ones, and leave the transaction open for ever.
        """
        admin = Admin(self.broker.bootstrap)
        wait_for(
            f"the markers of {self.topic}",
            lambda: admin.stable_end_offsets(self.topic, [0]) == admin.end_offsets(self.topic, [0]),
            _MARKERS_S,
        )

    def _senders(self) -> tuple[Sender, Sender]:
        transactional_id = f"{self.topic}-{next(_numbers)}"
        return Sender(self.broker, self.topic), Sender(self.broker, self.topic, transactional_id=transactional_id)

    def _note(self, *senders: Sender) -> None:
        self._wait_markers()
        for sender in senders:
            self.log.committed |= sender.log.committed
            self.log.aborted |= sender.log.aborted
        self.log = Log(dict(sorted(self.log.committed.items())), dict(sorted(self.log.aborted.items())))
