"""Dead letters of a projection become rows once its rule is mended, and nothing else changes (`--replay`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from rsm_bridge.storage.projections.progress import read_one
from tests.projections.projection_support import LETTERS, TOPIC_ID, ProjectionWorld, projection_world, sent
from tests.projections.test_projections_races import die
from tests.support.eventually import eventually

BAD = {"select": ["*", "60 div (n % 5) AS share"]}
MENDED = {"select": ["*", "60 div nullif(n % 5, 0) AS share"]}
UPSERT = {"mode": "upsert", "key": ["id"]}


def letters(world: ProjectionWorld) -> list[tuple[int, int]]:
    return [(row["_kafka_partition"], row["_kafka_offset"]) for row in world.rows(LETTERS)]


def told(world: ProjectionWorld) -> int:
    """How many there are, as `tierberg status` hears it."""
    progress = read_one(world.backend.store, world.job().projection.key(TOPIC_ID))
    return 0 if progress is None else progress.dead_letters


def replay(world: ProjectionWorld) -> int:
    return world.job(replay=True).run().replayed


def dies(world: ProjectionWorld, step: str) -> None:
    job = world.job(replay=True)

    def reached(now: str) -> None:
        if now == step:
            die()

    job.step = reached
    with pytest.raises(RepartitionError):
        job.run()


def test_letters_of_an_append_become_rows_once(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, BAD) as world:
        world.send([sent(n, {"id": n, "n": n}) for n in range(8)])
        world.send([sent(n, {"id": n, "n": n}) for n in range(8, 12)] + [(b"12", b"{")], 1)
        world.run()
        bad = [(0, 0), (0, 5), (1, 2), (1, 4)]
        assert letters(world) == bad
        assert told(world) == 4
        assert replay(world) == 0
        assert letters(world) == bad, "the rule is what it was"
        world.change(MENDED)
        for step in ("replay", "dead letters"):
            dies(world, step)
            assert letters(world) == bad
        assert replay(world) == 3
        assert letters(world) == [(1, 4)]
        assert told(world) == 1
        found = [(row["id"], row["share"]) for row in world.rows()]
        assert found == [(n, 60 // (n % 5) if n % 5 else None) for n in range(12)]
        assert replay(world) == 0
        world.send([sent(20, {"id": 20, "n": 20})])
        assert world.run().ranges == 1
        assert world.count(("kafka", "orders_projection")) == 13


def test_of_records_that_were_deleted_the_letters_stay(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {**BAD, "hold": "0s"}) as world:
        gone = world.send([sent(n, {"id": n, "n": n}) for n in range(2)])
        world.send([sent(n, {"id": n, "n": n}) for n in range(5, 7)])
        world.run()
        world.shim.delete(gone)
        eventually(lambda: world.state(0).floor == 2)
        world.change({**MENDED, "hold": "0s"})
        assert replay(world) == 1
        assert letters(world) == [(0, 0)]
        assert sorted(row["id"] for row in world.rows()) == [1, 5, 6]


@pytest.mark.parametrize("order", ["partition", "timestamp"])
def test_letters_of_an_upsert_do_not_undo_what_came_later(spark: Any, tmp_path: Path, order: str) -> None:
    rule = {**UPSERT, "key_order": order}
    key = "cast(cast(_kafka_key AS string) AS int) AS id"

    def value(n: int) -> dict[str, int]:
        return {"n": n}

    bad, mended = ({**rule, "key": ["id"], "select": [key, *made["select"]]} for made in (BAD, MENDED))
    with projection_world(spark, tmp_path, bad) as world:
        world.send([sent(1, value(1)), *(sent(n, value(5)) for n in range(1, 6))])
        world.send([sent(2, value(2)), sent(3, None), sent(4, value(4)), sent(4, value(10)), sent(6, value(6))])
        world.run()
        # 1: letter last. 2: a row since. 3: deleted since. 4: a row since, then a letter. 5: nothing but a letter.
        assert {row["id"]: row["n"] for row in world.rows()} == {1: 1, 2: 2, 4: 4, 6: 6}
        world.change(mended)
        dies(world, "dead letters")
        assert replay(world) in {0, 6}
        assert {row["id"]: row["n"] for row in world.rows()} == {1: 5, 2: 2, 4: 10, 5: 5, 6: 6}
        assert letters(world) == []
