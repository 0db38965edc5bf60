"""The plan of faults: a pure function of the seed.

Faults come in lanes that run beside each other; in a lane one follows the other, so that never two brokers are down,
and a store is not slow and gone at once. A lane is endless: how much of it is reached depends on time and machine.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens next in a lane.

    Attributes:
        after_s: pause since the one before has ended.
        name: what.
        lasts_s: for how long, where it has a length.
        draws: numbers in [0, 1) by which it chooses targets and sizes.
    """

    after_s: float
    name: str
    lasts_s: float
    draws: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a fault comes in its lane, in shares, and how long it lasts, in seconds."""

    share: float
    shortest_s: float
    longest_s: float


#: Mean pause between two faults of a lane.
PAUSES_S: Mapping[str, float] = {"bridge": 9.0, "broker": 30.0, "store": 14.0, "catalog": 22.0, "topic": 14.0}
LANES: Mapping[str, Mapping[str, Kind]] = {
    "bridge": {
        "bridge-kill": Kind(4, 0.1, 8),
        "bridge-stop": Kind(2, 0.1, 8),
        "bridge-freeze": Kind(3, 0.5, 20),
        "bridge-clock": Kind(2, 5, 40),
        "bridges-away": Kind(1, 1, 20),
    },
    "broker": {
        "broker-kill": Kind(3, 0.1, 8),
        "broker-stop": Kind(2, 0.1, 8),
        "broker-freeze": Kind(2, 1, 14),
        "broker-disk-full": Kind(1, 1, 10),
        "broker-and-bridges-kill": Kind(1, 0.5, 10),
    },
    "store": {
        "store-slow": Kind(3, 5, 25),
        "store-refuse": Kind(2, 3, 15),
        "store-cut": Kind(2, 5, 25),
        "store-lost": Kind(3, 5, 25),
        "store-full": Kind(2, 3, 25),
        "store-disk-full": Kind(1, 3, 15),
        "store-freeze": Kind(2, 1, 15),
        "store-kill": Kind(2, 0.1, 6),
    },
    "catalog": {
        "catalog-kill": Kind(2, 0.1, 15),
        "catalog-freeze": Kind(2, 1, 25),
        "catalog-lost": Kind(4, 5, 30),
        "catalog-cut": Kind(2, 5, 25),
        "catalog-slow": Kind(1, 5, 30),
    },
    "topic": {
        "delete-records": Kind(4, 0, 0),
        "retention": Kind(3, 4, 12),
        "recreate": Kind(2, 0.1, 6),
    },
}
#: What needs three brokers.
CLUSTER: Mapping[str, Kind] = {
    "leader-move": Kind(4, 0, 0),
    "replica-wipe": Kind(1, 0.1, 6),
    "unclean": Kind(2, 2, 8),
}


def known() -> list[str]:
    """All names, sorted."""
    return sorted([*(name for lane in LANES.values() for name in lane), *CLUSTER])


def lanes(brokers: int, names: Collection[str]) -> dict[str, dict[str, Kind]]:
    """The lanes of a world, each with those of `names` that it can have; without empty ones."""
    found = {lane: dict(kinds) for lane, kinds in LANES.items()}
    if brokers > 1:
        found["broker"] |= CLUSTER
    chosen = {lane: {name: kind for name, kind in kinds.items() if name in names} for lane, kinds in found.items()}
    return {lane: kinds for lane, kinds in chosen.items() if kinds}


def faults(seed: int, lane: str, kinds: Mapping[str, Kind]) -> Iterator[Fault]:
    """The endless sequence of a lane."""
    draw = random.Random(f"{seed} {lane}")
    names = sorted(kinds)
    shares = [kinds[name].share for name in names]
    while True:
        (name,) = draw.choices(names, shares)
        kind = kinds[name]
        # Mostly short, sometimes long.
        lasts_s = kind.shortest_s + (kind.longest_s - kind.shortest_s) * draw.random() ** 2
        after_s = draw.uniform(0.2, 1.8) * PAUSES_S[lane]
        yield Fault(after_s, name, lasts_s, (draw.random(), draw.random(), draw.random()))
