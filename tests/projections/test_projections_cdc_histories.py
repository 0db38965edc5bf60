"""Random lives of a database table, as a connector tells them, against the table itself.

At steps of the runs jobs die, and somebody else compacts the projection and expires its snapshots.
`make cdc` runs more of them, and says how many.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run import write
from tests.projections.cdc_source import ENVELOPE, CdcSource, Form, Identity, Row
from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, projection_world
from tests.projections.test_projections_races import DiedError, compact, expire, interrupted

RULE = {"mode": "upsert", "key": ["id"], "envelope": "debezium"}
COLUMNS = ("id", "name", "body", "tags")
FORMS: tuple[Form, ...] = ("json", "json with schemas", "avro")
IDENTITIES: tuple[Identity, ...] = ("default", "index", "full")
#: Format version, row writes, soft deletes.
WAYS = (
    (2, "merge-on-read", False),
    (3, "copy-on-write", True),
    (2, "copy-on-write", False),
    (3, "merge-on-read", True),
)
#: The last: whether what is worked out counts as small.
EVERY = list(itertools.product(FORMS, IDENTITIES, WAYS, (True, False)))


STEPS = ("read", "write", "dead letters", "publish")


def die(_: ProjectionWorld) -> None:
    raise DiedError


def compact_and_expire(world: ProjectionWorld) -> None:
    compact(world)
    expire(world)


DEEDS = (die, compact, expire, compact_and_expire)


def run(world: ProjectionWorld, random: Random) -> None:
    """One run in which something happens, then one that nobody troubles."""
    step, deed = random.choice(STEPS), random.choice(DEEDS)
    print(f"{deed.__name__} before {step}")
    job = interrupted(world, step, lambda: deed(world) if world.catalog.table_exists(PROJECTION) else None)
    try:
        job.run()
    except RepartitionError as error:
        if deed is not die and error.kind != "raced":
            raise
    world.run()
    if random.random() < 0.3:
        compact_and_expire(world)


def fair(cases: list[Any]) -> list[Any]:
    """All of them where it is asked for, else five: every form and both ways to merge among them."""
    return cases if os.environ.get("TIERBERG_CDC") == "all" else cases[::15]


@pytest.mark.parametrize(("form", "identity", "way", "few"), fair(EVERY))
def test_a_projection_is_the_database_table(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Form,
    identity: Identity,
    way: tuple[int, str, bool],
    few: bool,
) -> None:
    version, writes, soft = way
    seed = int(os.environ.get("TIERBERG_CDC_SEED", "7")) * 1000 + EVERY.index((form, identity, way, few))
    print(f"seed {seed}")
    source = CdcSource(Random(seed), form, identity)
    if not few:  # as if nothing that is worked out were small
        monkeypatch.setattr(write, "FEW_WORKED_OUT_BYTES_MAX", -1)
    rule = {**RULE, "format_version": version, "row_writes": writes, "soft_deletes": soft}
    schemas = [ENVELOPE] if form == "avro" else []
    with projection_world(spark, tmp_path, rule, schemas=schemas) as world:
        world.send(source.snapshot(6))
        for _ in range(4):
            for _ in range(source.random.randrange(1, 3)):
                world.send([event for _ in range(source.random.randrange(3, 14)) for event in source.step()])
            run(world, source.random)
            found = world.rows()
            alive = {row["id"]: _columns(row) for row in found if not row.get("__deleted")}
            assert alive == source.rows
            assert len(found) == len({row["id"] for row in found})
            if soft:
                assert {row["id"]: _columns(row) for row in found if row["__deleted"]} == source.gone
        assert not world.catalog.table_exists(LETTERS)


def _columns(row: Row) -> Row:
    return {name: row[name] for name in COLUMNS}
