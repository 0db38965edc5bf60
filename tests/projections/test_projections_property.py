"""Random histories against a list and a dict.

Inserts, updates, deletes, tombstones, keys that are null or change, schemas that grow, records that cannot be decoded
or transformed, retention, rows that come late, unclean elections, segments that come twice, merges of the topic's
table, runs in portions, runs that die, compaction and expiry of the projections: whenever a projection then
runs, it is exact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from repartition.maintain import due, maintain
from rsm_bridge.storage.projections import hold
from tests.projections.projection_cases import CASES
from tests.projections.projection_histories import Act, Change, Model
from tests.projections.projection_oracle import NAMES, Shape
from tests.projections.projection_support import projection_world
from tests.projections.projection_values import ENVELOPES, PLAIN, VERSIONS

SHAPES = st.builds(
    Shape,
    st.sampled_from(("plain", "plain", "debezium", "debezium", "moving")),
    st.sampled_from(("merge-on-read", "copy-on-write")),
    st.sampled_from((2, 3)),
)
CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(("put", "put", "put", "delete", "delete", "move", "broken", "no key")),
        st.integers(0, 5),
        st.integers(1, VERSIONS),
        st.integers(0, 30),
    ),
    min_size=1,
    max_size=6,
).map(tuple)
PARTITION, NUMBER = st.integers(0, 1), st.integers(0, 1000)
SEND = st.builds(Act, st.sampled_from(("send", "send", "send", "send hidden", "rewind")), PARTITION, CHANGES, NUMBER)
TOPIC_S = st.sampled_from(("again", "retention", "retention", "requeue", "merge"))
PROJECTION_S = st.sampled_from(("run", "run", "portion", "die", "maintain"))
OTHER = st.builds(Act, TOPIC_S | PROJECTION_S, PARTITION, st.just(()), NUMBER)
#: Rules name columns, so there is a value before anything else.
FIRST = Act("send", changes=(Change("put", 0, 1, 0),))
HISTORY = st.lists(SEND | OTHER, min_size=8, max_size=18)


def play(spark: Any, shape: Shape, history: Sequence[Act]) -> None:
    schemas = ENVELOPES if shape.kind == "debezium" else PLAIN
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        projection_world(spark, Path(folder), *shape.rules(), schemas=schemas) as world,
    ):
        patch.setattr(hold, "PROJECTION_PROGRESS_FRESH_SECONDS", 0.0)
        patch.setattr(due, "COMPACTION_FILES_MIN", 2)
        patch.setattr(due, "COMPACTION_DELETE_FILES_MIN", 1)
        patch.setattr(due, "SNAPSHOT_AGE_MS", -1)
        patch.setattr(maintain, "SNAPSHOT_AGE_MS", -1)
        patch.setattr(maintain, "COMPACTION_INPUT_FILES_MIN", 2)
        model = Model(world, shape)
        for act in [FIRST, *history]:
            model.act(act)
        for mode in NAMES:
            model.act(Act("run", list(NAMES).index(mode)))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("shape", "history"), CASES, ids=[shape.kind for shape, _ in CASES])
def test_projections_are_what_a_dict_says(spark: Any, shape: Shape, history: Sequence[Act]) -> None:
    play(spark, shape, history)


@pytest.mark.slow
@pytest.mark.timeout(10800)
@settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(shape=SHAPES, history=HISTORY)
def test_many_projections_are_what_a_dict_says(spark: Any, shape: Shape, history: list[Act]) -> None:
    play(spark, shape, history)
