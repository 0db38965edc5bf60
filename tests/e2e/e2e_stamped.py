"""Records whose timestamps can be looked up, in overlapping transactions of several producers, in small segments."""

from __future__ import annotations

import random
import time

from tests.e2e.e2e_support import Pair, Rec, Sender

#: Timestamps lie ahead of the broker's clock, so that local segments can only go by size.
SMALL_SEGMENTS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "0",
    "retention.ms": "-1",
}
VALUE_BYTES = 400


def stamped(seed: int, count: int, value_bytes: int = VALUE_BYTES, *, compressible: bool = True) -> list[Rec]:
    """Records with rising, slightly disordered timestamps over forty minutes from ten minutes ahead of now."""
    draw = random.Random(seed)
    start_ms = int(time.time() * 1000) + 600_000
    records = []
    for number in range(count):
        plain = value_bytes // 2 if compressible else 0
        value = draw.randbytes(value_bytes - plain) + bytes(plain)
        stamp = start_ms + number * 2_400_000 // count + draw.randrange(500)
        records.append(Rec(None, value, (), stamp))
    return records


def transactions(records: list[Rec], seed: int, largest: int) -> list[list[Rec]]:
    """The records cut into transactions of 2 to `largest`."""
    draw = random.Random(seed)
    found = []
    while records:
        size = draw.randint(2, largest)
        found.append(records[:size])
        records = records[size:]
    return found


def senders(pair: Pair, topic: str, codec: str, batch_records: int) -> list[Sender]:
    return [
        Sender(
            pair.broker,
            topic,
            transactional_id=f"{topic}-{number}",
            compression_type=codec,
            batch_num_messages=batch_records,
            linger_ms=5,
        )
        for number in range(3)
    ]
