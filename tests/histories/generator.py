"""Random steps. Each history has weights of its own, so that what is rare in most is common in some."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.histories.kafka_steps import Setup
from tests.histories.tiered_table import EPOCHS_RECORDED
from tests.histories.world import COMMITS, STORE, Step

RETENTIONS: tuple[str | float, ...] = ("follow-kafka", "keep", 2 * 24 * 3600.0)
STEPS_MIN, STEPS_MAX = 15, 90
#: How many numbers each action takes, and how often it is done, more or less.
ACTIONS: dict[str, tuple[int, float]] = {
    "write": (3, 2),
    "clean": (3, 0.5),
    "transaction": (3, 2),
    "end": (3, 2),
    "roll": (2, 1),
    "replicate": (3, 2),
    "elect": (2, 1),
    "restarts": (3, 0.5),
    "rebuild": (4, 0.4),
    "delete_records": (2, 0.7),
    "retain": (2, 0.7),
    "copy": (4, 2),
    "withdraw": (3, 1.5),
    "delete": (4, 1.5),
    "time": (1, 0.7),
    "clock": (2, 0.4),
    "restart": (1, 0.3),
    "publish": (7, 2),
    "late_landing": (0, 0.5),
    "roll_back": (1, 0.3),
    "recreate": (1, 0.05),
    "settle": (0, 0.25),
}
#: Several steps in a row that happen all the time, and how often.
FLOWS: dict[str, float] = {
    "flow": 4,
    "lost_reply": 1,
    "stale_leader": 1,
    "retention": 1,
    "end_twice": 0.5,
    "long_lived": 0.5,
    "forgotten_branch": 0.5,
    "late_commit": 0.5,
}
BIG = 60
#: How many epochs a state may have. Where they are few, records are shortened all the time.
EPOCHS_RECORDED_OF = (EPOCHS_RECORDED, EPOCHS_RECORDED, 6, 3)


def steps(seed: int, setup: Setup) -> Iterator[Step]:
    """The steps of one history; the last one settles."""
    draw = random.Random(seed)
    names = [*ACTIONS, *FLOWS]
    base = [*(weight for _, weight in ACTIONS.values()), *FLOWS.values()]
    weights = [weight * draw.choice((0, 0.3, 1, 1, 3)) if name not in ("settle", "flow", "publish") else weight
               for name, weight in zip(names, base, strict=True)]  # fmt: skip
    count = draw.randint(STEPS_MIN, STEPS_MAX)
    rolls_back = draw.choice((0, 0, 0.3, 0.7))
    made = 0
    while made < count:
        name = draw.choices(names, weights)[0]
        found = [one(draw, name)] if name in ACTIONS else list(FLOW[name](draw, setup))
        if rolls_back and found[-1][0] == "publish" and draw.random() < rolls_back:
            found.append(one(draw, "roll_back"))
        made += len(found)
        yield from found
    yield ("settle", (), ())


def one(draw: random.Random, name: str) -> Step:
    """One step with random numbers."""
    if name == "publish":
        return publish(draw)
    return name, tuple(draw.randrange(BIG) for _ in range(ACTIONS[name][0])), ()


def publish(draw: random.Random, *, calm: bool = False) -> Step:
    """A run: mostly without faults; now and then with steps of others in its midst."""
    commit = 0 if calm or draw.random() < 0.6 else draw.randrange(len(COMMITS))
    store = 0 if calm or draw.random() < 0.7 else draw.randrange(len(STORE))
    during: tuple[Step, ...] = ()
    if not calm and draw.random() < 0.15:
        names = draw.choices(("copy", "delete", "withdraw", "write", "roll", "replicate"), (6, 2, 2, 1, 1, 1), k=3)
        during = tuple(one(draw, name) for name in names[: draw.randint(1, 3)])
    reclaim = draw.choice((0, 0, 0, 1, 1, 2, 5))
    mode = draw.choice((0, 0, 1, 2))
    numbers = (draw.randrange(2), mode, commit, store, draw.randrange(12), draw.randrange(3), reclaim)
    return "publish", numbers, during


def flow(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """Batches, a full segment, markers in the next one, followers that keep up, a copy, perhaps a run."""
    p, pid = draw.randrange(setup.partitions), draw.randrange(2)
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(("write", "write", "transaction", "transaction", "end"))
        yield kind, (p, draw.randrange(3), pid if kind != "write" else 1) if kind != "end" else (p, pid, 1), ()
    yield "roll", (p, 0), ()
    if draw.random() < 0.7:
        yield "end", (p, pid, draw.randrange(3)), ()
    if draw.random() < 0.8:
        align = draw.randrange(2)
        for broker in range(3):
            yield "replicate", (p, broker, align), ()
    for _ in range(draw.randrange(3)):
        yield "copy", (p, draw.randrange(2), draw.choice((0, 0, 0, 1, 2)), draw.randrange(2)), ()
    if draw.random() < 0.5:
        yield publish(draw)


def lost_reply(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """The reply of a copy is lost; the publisher comes before Kafka copies again, and time passes."""
    p = draw.randrange(setup.partitions)
    yield "write", (p, draw.randrange(3), 1), ()
    yield "roll", (p, 0), ()
    for broker in range(3):
        yield "replicate", (p, broker, 1), ()
    yield "copy", (p, 0, 2, 0), ()
    yield publish(draw, calm=True)
    yield "withdraw", (p, draw.randrange(3), draw.randrange(2)), ()
    if draw.random() < 0.8:
        yield "copy", (p, 1, 0, 0), ()
    yield draw.choice((("time", (2,), ()), ("clock", (0, draw.randrange(5)), ()), ("time", (0,), ())))
    yield publish(draw)


def stale_leader(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """Leaders change and nobody catches up; each writes, and copies a segment or not."""
    p = draw.randrange(setup.partitions)
    for _ in range(draw.randint(1, 3)):
        yield "elect", (p, draw.randrange(3)), ()
        for _ in range(draw.randint(1, 3)):
            yield "write", (p, draw.randrange(3), 1), ()
        yield "roll", (p, 0), ()
        if draw.random() < 0.8:
            yield "copy", (p, draw.randrange(2), draw.choice((0, 0, 0, 2)), 0), ()
        if draw.random() < 0.6:
            yield publish(draw, calm=True)


def retention(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """The log start rises, deletes follow, runs see them."""
    p = draw.randrange(setup.partitions)
    yield draw.choice((("retain", (p, draw.randrange(3)), ()), ("delete_records", (p, draw.randrange(12)), ())))
    for _ in range(draw.randrange(3)):
        yield "delete", (p, draw.randrange(3), draw.randrange(2), draw.choice((0, 0, 1, 2))), ()
    yield publish(draw)
    if draw.random() < 0.5:
        yield "time", (1,), ()
        yield "publish", (draw.randrange(2), 0, 0, 0, 0, 0, draw.choice((1, 5, 5))), ()


def late_commit(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """A commit is on its way for a while, and another bridge's comes first, or not."""
    yield from flow(draw, setup)
    bridge = draw.randrange(2)
    yield "publish", (bridge, 0, COMMITS.index("lands late"), 0, 0, 0, 0), ()
    if draw.random() < 0.6:
        yield "publish", (1 - bridge, 0, 0, 0, 0, 0, 0), ()
    yield "late_landing", (), ()


def end_twice(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """A transaction was read to have ended; another leader's log ends it otherwise."""
    p, pid, commit, broker = draw.randrange(setup.partitions), draw.randrange(2), draw.randrange(2), draw.randrange(3)
    yield "transaction", (p, 0, pid), ()
    yield "roll", (p, 0), ()
    for number in range(3):
        yield "replicate", (p, number, 1), ()
    yield "end", (p, pid, commit), ()
    yield "copy", (p, 0, 0, 1), ()
    yield publish(draw)
    yield "elect", (p, broker), ()
    yield "end", (p, pid, 1 - commit), ()
    yield "roll", (p, 0), ()
    yield "copy", (p, 0, 0, 0), ()


def long_lived(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """A segment that lives through many restarts, followers that stop catching up somewhere in between."""
    p = draw.randrange(setup.partitions)
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.3:
            yield "transaction", (p, draw.randrange(3), draw.randrange(2)), ()
        yield "restarts", (p, draw.randrange(8), draw.randrange(4)), ()
        if draw.random() < 0.6:
            yield "replicate", (p, draw.randrange(3), 0), ()
    yield "end", (p, draw.randrange(2), draw.randrange(3)), ()
    yield "roll", (p, 0), ()
    if draw.random() < 0.6:
        for broker in range(3):
            yield "replicate", (p, broker, 1), ()
    yield "copy", (p, draw.randrange(2), draw.choice((0, 0, 0, 2)), draw.randrange(2)), ()
    yield publish(draw)
    if draw.random() < 0.5:
        yield "elect", (p, draw.randrange(3)), ()


def forgotten_branch(draw: random.Random, setup: Setup) -> Iterator[Step]:
    """A leader of many epochs is copied and all its copies are deleted; then the one wins back that it had left behind.

    What showed where the two parted is in no index any more, and beyond the limit of the record not there either.
    """
    p, older, newer = draw.randrange(setup.partitions), draw.randrange(3), draw.randrange(3)
    yield "elect", (p, older), ()
    for _ in range(draw.randint(1, 2)):
        yield "write", (p, draw.randrange(3), 1), ()
    if draw.random() < 0.5:
        yield "roll", (p, 0), ()
        yield "write", (p, draw.randrange(3), 1), ()
    yield "replicate", (p, newer, 0), ()
    for _ in range(draw.randint(1, 3)):
        yield "write", (p, 2, 1), ()
    yield "elect", (p, newer), ()
    for _ in range(draw.randint(1, 2)):
        yield "restarts", (p, draw.randrange(6), 1), ()
    yield "roll", (p, 0), ()
    for _ in range(draw.randint(1, 3)):
        yield "copy", (p, 0, 0, 0), ()
    yield publish(draw, calm=True)
    yield "retain", (p, 2), ()
    for _ in range(draw.randint(1, 4)):
        yield "delete", (p, 0, 0, 0), ()
    yield "time", (1,), ()
    yield "publish", (0, 0, 0, 0, 0, 0, draw.choice((1, 5))), ()
    yield "elect", (p, older), ()
    yield "write", (p, draw.randrange(3), 1), ()
    yield "roll", (p, 0), ()
    for _ in range(draw.randint(1, 3)):
        yield "copy", (p, 0, 0, 0), ()
    yield publish(draw, calm=True)


FLOW = {
    "forgotten_branch": forgotten_branch,
    "late_commit": late_commit,
    "long_lived": long_lived,
    "flow": flow,
    "lost_reply": lost_reply,
    "stale_leader": stale_leader,
    "retention": retention,
    "end_twice": end_twice,
}


def setup_of(seed: int, *, clean: bool, retention: str | float) -> Setup:
    """The world of a history: one partition mostly, up to three; a limit of recorded epochs, met now and then."""
    draw = random.Random(seed ^ 0x5EED)
    return Setup(clean, retention, draw.choice((1, 1, 1, 2, 3)), draw.choice(EPOCHS_RECORDED_OF))
