"""What `tierberg status` says of projections, from a real store and table."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.hold import ReadTo
from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.progress.facts import ProjectionFacts
from rsm_bridge.status.store.projections import projection_facts
from rsm_bridge.storage.projections.hold import ProjectionReaders
from rsm_bridge.storage.projections.progress import (
    ProjectionFailure,
    ProjectionProgress,
    ProjectionSize,
    progress_key,
)
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import recorded_parts
from tests.support.projection_progress import put_progress
from tests.unit.rsm_bridge.status.test_status_print import SCHEMA
from tests.worlds.maintain_support import DAY, World, make_world, published
from tierberg.cli import app

PROJECTION: dict[str, Any] = {"table": "{topic}_by_day", "hold": "2d"}
RUNNER = CliRunner()


def rules(projection: dict[str, Any] = PROJECTION, **rule: Any) -> dict[str, Any]:
    return {"topics": [{"pattern": "orders", "copies": [projection], **rule}]}


def progress(world: World, read: int, **changes: Any) -> ProjectionProgress:
    found = ProjectionProgress(
        topic_id=world.topic_id,
        catalog="tierberg",
        table="kafka.orders_by_day",
        read={0: ReadTo(read)},
        snapshot_id=1,
        succeeded_ms=2,
        caught_up_ms=3,
    )
    return replace(found, **changes)


def asked(world: World, folder: Path, given: dict[str, Any] | None = None) -> ProjectionFacts:
    settings = load_settings(None, {"data_dir": folder, **(given or rules())})
    head = LiveFiles().read(world.loaded())
    segments = read_segments(world.store, world.topic_id)
    found = projection_facts(
        settings, world.store, head, recorded_parts(world.store, head), segments, int(time.time() * 1000)
    )
    (projection,) = found
    return projection


def held(folder: Path, age_s: int) -> World:
    """Two of three segments of three rows were deleted so long ago, and stay for a projection."""
    world = make_world(folder)
    segments = published(world)
    settings = load_settings(None, {"data_dir": folder, **rules()})
    world.rule(projections=ProjectionReaders(settings, world.store).waiting)
    world.ahead_ms = -age_s * 1000
    world.delete(*segments[:2])
    world.publish()
    assert world.offsets() == list(range(9))
    return world


def test_how_far_a_projection_is(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    found = asked(world, tmp_path)
    assert (found.table, found.catalog, found.hold_s) == ("kafka.orders_by_day", "tierberg", 2 * DAY)
    assert (found.progress, found.damage, found.lag_offsets, found.lag_rows, found.waiting) == (None, None, 9, 9, None)
    for read, lag in ((0, 9), (4, 5), (9, 0), (12, 0)):
        said = progress(world, read)
        put_progress(world.store, said)
        found = asked(world, tmp_path)
        assert (found.progress, found.lag_offsets, found.lag_rows, found.waiting) == (said, lag, lag, None)


def test_rows_behind_are_those_of_files_and_not_more_than_offsets(tmp_path: Path) -> None:
    """A data file of six offsets with three rows, as transactions leave it; then one of three with three."""
    world = make_world(tmp_path)
    world.copy(3)
    world.publish()
    head = LiveFiles().read(world.loaded())
    (file,) = head.files
    states = {0: replace(recorded_parts(world.store, head)[0], frontier=20)}
    head = replace(head, files=(replace(file, last=5, rows=3), replace(file, first=10, last=12)))
    settings = load_settings(None, {"data_dir": tmp_path, **rules()})
    segments = read_segments(world.store, world.topic_id)
    for read, offsets, rows in ((0, 20, 6), (1, 19, 6), (4, 16, 5), (5, 15, 4), (6, 14, 3), (12, 8, 1), (13, 7, 0)):
        put_progress(world.store, progress(world, read))
        (found,) = projection_facts(settings, world.store, head, states, segments, 0)
        assert (found.lag_offsets, found.lag_rows) == (offsets, rows)


def test_since_when_the_oldest_unread_segment_is_there(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    segments = [
        replace(known, listed=replace(known.listed, modified_ms=1000 + known.key.base))
        for known in read_segments(world.store, world.topic_id)
    ]
    head = LiveFiles().read(world.loaded())
    states = recorded_parts(world.store, head)
    settings = load_settings(None, {"data_dir": tmp_path, **rules()})
    for read, since_ms in ((0, 1000), (2, 1000), (3, 1003), (8, 1006), (9, None)):
        put_progress(world.store, progress(world, read))
        (found,) = projection_facts(settings, world.store, head, states, segments, 0)
        assert found.unread_ms == since_ms


def test_what_stays_for_it_and_when_that_ends(tmp_path: Path) -> None:
    world = held(tmp_path, DAY)
    found = asked(world, tmp_path).waiting
    assert found is not None
    assert (found.rows, found.files) == (6, 2)
    assert found.bytes > 0
    assert abs(found.ends_ms - int(time.time() * 1000) - DAY * 1000) < 60_000
    put_progress(world.store, progress(world, 3))
    found = asked(world, tmp_path).waiting
    assert found is not None
    assert (found.rows, found.files) == (3, 1)
    put_progress(world.store, progress(world, 6))
    assert asked(world, tmp_path).waiting is None


@pytest.mark.parametrize(
    "given", [rules({**PROJECTION, "hold": "0s"}), rules(table_retention="keep"), rules({**PROJECTION, "hold": "1h"})]
)
def test_nothing_stays_for_a_projection_without_hold_or_whose_time_is_over_or_in_an_archive(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    assert asked(held(tmp_path, DAY), tmp_path, given).waiting is None


def test_damaged_progress_is_said_to_be_damaged(tmp_path: Path) -> None:
    world = held(tmp_path, DAY)
    assert world.store.put_if_absent(progress_key(world.topic_id, "tierberg", "kafka.orders_by_day"), b"")
    found = asked(world, tmp_path)
    assert found.damage is not None
    assert (found.progress, found.damage.kind, found.lag_offsets) == (None, "corrupt_object", 9)
    assert found.waiting is not None


@pytest.mark.parametrize(("age_s", "code"), [(DAY // 2, 0), (DAY + 3600, 1)])
def test_the_command_warns_from_half_of_the_hold_on(tmp_path: Path, age_s: int, code: int) -> None:
    world = held(tmp_path, age_s)
    failure = ProjectionFailure(1, "bad SQL", "mend it")
    put_progress(world.store, progress(world, 0, size=ProjectionSize(1, 2, 1536), failure=failure if code else None))
    config = tmp_path / "tierberg.yaml"
    config.write_text(json.dumps(rules()))
    arguments = [
        "status",
        "--config",
        str(config),
        "--data-dir",
        str(tmp_path),
        "--bridge",
        "none",
        "--accept",
        "mass_delete",
    ]
    said = RUNNER.invoke(app, arguments)
    assert said.exit_code == code, said.output
    head, row = said.output.splitlines()[-2:]
    named = "PROJECTION SNAPSHOT LAST RUN BEHIND IN ROWS (AGE) HELD ROWS LOST IN ROWS FILES SIZE OF TABLE"
    assert head.split() == named.split()
    assert row.split()[:2] == ["kafka.orders_by_day", "1"]
    assert row.split()[-5:] == ["1", "2", "1.5", "KiB", "kafka.orders"]
    assert f"9 {9}" in " ".join(row.split()), "offsets and rows behind"
    assert ("rows will be lost to this projection in 22 h" in said.output or "in 23 h" in said.output) == bool(code)
    document = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).output)
    jsonschema.validate(document, SCHEMA)
    (projection,) = document["topics"][0]["copies"]
    assert projection.keys() == SCHEMA["$defs"]["copy"]["properties"].keys()
    assert (projection["held_rows"], projection["lag_offsets"], projection["lag_rows"]) == (6, 9, 9)
    assert projection["size"] == {"rows": 1, "files": 2, "bytes": 1536}
    assert projection["failure"] == ({"at_ms": 1, "message": "bad SQL", "advice": "mend it"} if code else None)
    codes = {finding["code"] for finding in document["topics"][0]["findings"]}
    assert {"copy_loses_rows", "copy_failed"} <= codes if code else "copy_holds_rows" in codes
