"""A stream of orders for the projection: fixed, seeded, with keys of three sizes.

Events below ORDERS place one order each, spread over DAYS days of Kafka timestamps; events after those
change orders drawn at random. An order belongs to an account and a customer, and all of a customer's to one partition,
so that each of the three ids is a key that stays in its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ORDERS = 5_000_000
ACCOUNTS = 1_000_000
CUSTOMERS = 100_000
PARTITIONS = 4
DAYS = 20
BEGIN_MS = 1_717_200_000_000  # 2024-06-01T00:00:00Z
DAY_MS = 86_400_000
#: The sizes of the keys, by column.
KEYS = {"customer_id": CUSTOMERS, "account_id": ACCOUNTS, "order_id": ORDERS}
#: Of the layout that is measured: by day of the record's timestamp, and customers in so many buckets.
BUCKETS = 8
#: A value's columns.
ARROW = pa.schema(
    {
        "order_id": pa.int64(),
        "account_id": pa.int64(),
        "customer_id": pa.int64(),
        "status": pa.string(),
        "amount": pa.float64(),
        "quantity": pa.int64(),
        "paid": pa.bool_(),
        "product": pa.string(),
        "email": pa.string(),
        "street": pa.string(),
        "city": pa.string(),
        "session": pa.string(),
        "weight_kg": pa.float64(),
        "note": pa.string(),
        "event": pa.int64(),
    }
)
_STEP = 3_141_593  # prime to ORDERS: a permutation
_STATUSES = ("PLACED", "PAID", "PACKED", "SHIPPED", "DELIVERED", "RETURNED", "CANCELLED")
_SHARES = (0.15, 0.2, 0.1, 0.2, 0.25, 0.05, 0.05)
_CITIES = ("Berlin", "Zürich", "Kraków", "Lisboa", "Ulm", "Gelsenkirchen", "New York", "São Paulo", "東京")
_CHUNK = 50_000
_NOTE_WORDS = 10
_WORDS = [
    f"{first}{last}"
    for first in ("ba", "de", "ki", "lo", "mu", "ne", "ra", "so")
    for last in ("st", "lter", "n", "rin", "x")
]


@dataclass(frozen=True, slots=True)
class Sized:
    """How much of it: `orders` of `days` days, as many keys as in proportion."""

    orders: int = ORDERS
    days: int = DAYS

    def keys(self, column: str) -> int:
        """How many values this key has."""
        return min(KEYS[column], self.orders)

    def timestamp_ms(self, event: int) -> int:
        """Of an event; events after the last order are of the day after."""
        return BEGIN_MS + event * self.days * DAY_MS // self.orders


@dataclass(frozen=True, slots=True)
class Event:
    """One record. `partition`: Kafka's."""

    partition: int
    timestamp_ms: int
    key: bytes
    value: bytes


def events(sized: Sized, first: int, count: int) -> Iterator[Event]:
    """Events [first, first + count)."""
    for begin in range(first, first + count, _CHUNK):
        yield from _chunk(sized, begin, min(_CHUNK, first + count - begin))


def _chunk(sized: Sized, first: int, count: int) -> Iterator[Event]:
    draw = np.random.default_rng((20240601, first))
    changed = draw.integers(0, sized.orders, count).tolist()
    statuses = draw.choice(len(_STATUSES), count, p=_SHARES).tolist()
    cents = draw.integers(100, 1_000_000, count).tolist()
    quantities = draw.integers(1, 20, count).tolist()
    products = draw.zipf(1.3, count).tolist()
    cities = draw.integers(0, len(_CITIES), count).tolist()
    sessions = draw.integers(0, 1 << 62, count).tolist()
    words = draw.integers(0, len(_WORDS), (count, _NOTE_WORDS)).tolist()
    for n in range(count):
        event = first + n
        order = event * _STEP % sized.orders if event < sized.orders else changed[n]
        account = order % sized.keys("account_id")
        customer = account % sized.keys("customer_id")
        value = (
            f'{{"order_id":{order},"account_id":{account},"customer_id":{customer},'
            f'"status":"{_STATUSES[statuses[n]]}","amount":{cents[n] / 100},"quantity":{quantities[n]},'
            f'"paid":{"true" if cents[n] % 3 else "false"},"product":"sku-{products[n] % 100_000:06d}",'
            f'"email":"customer-{customer:06d}@example.org","street":"{_WORDS[words[n][0]]} {quantities[n]}",'
            f'"city":"{_CITIES[cities[n]]}","session":"{sessions[n]:016x}","weight_kg":{cents[n] % 977 / 10},'
            f'"note":"{" ".join(_WORDS[word] for word in words[n])}","event":{event}}}'
        )
        yield Event(customer % PARTITIONS, sized.timestamp_ms(event), b"%d" % order, value.encode())
