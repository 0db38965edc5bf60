"""Status finds the table that the bridge publishes into, though a broker came back with another cluster name."""

from __future__ import annotations

import math
from pathlib import Path

from rsm_bridge.config.settings import load_settings
from rsm_bridge.status.store.facts import head_of, stored_topic
from tests.worlds.maintain_support import NAMESPACE, make_world, published
from tests.worlds.status_support import read_topics


def test_the_table_of_the_name_before(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    world.cluster = "renamed"
    world.copy(3)
    world.publish()
    assert world.offsets() == list(range(12))
    settings = load_settings(None, {"data_dir": tmp_path})
    (read,) = read_topics(world.store, None, math.inf)
    found = stored_topic(read, head_of(world.catalog, NAMESPACE), world.store, settings)
    assert found.table is not None, "the table was looked for under the new name alone"
    assert (found.table.frontiers, found.others, found.table_problem) == ({0: 12}, (), None)
