"""Histories the random search once stumbled over, as steps of it: each showed a mistake in the plan or in the model."""

from __future__ import annotations

import pytest

from tests.property.test_plan_histories import Histories
from tests.unit.plan_support import KEEP


class Archive(Histories):
    """Rows never leave by retention, and elections may be unclean."""

    clean = False
    policy = KEEP


def begun(*, narrow: bool) -> Archive:
    state = Archive()
    state.begin(narrow=narrow)
    return state


@pytest.mark.parametrize("narrow", [True, False])
def test_a_page_that_missed_the_marker_s_segment_does_not_lose_the_transaction(narrow: bool) -> None:
    """Between two pages of a listing come a segment with the marker, for the first, and one above, for the second."""
    state = begun(narrow=narrow)
    state.flow(kinds=["transaction"], pid=1, ends=True, keep_up=1)
    state.copy(fault="", verbatim=False, peek=False)
    state.list_one_page(up_to=2)
    state.roll(0)
    state.flow(kinds=["plain"], pid=1, ends=True, keep_up=1)
    while state.kafka.due():
        state.copy(fault="", verbatim=False, peek=False)
    state.finish_slow_publish()
    state.nothing_is_wrong()
    state.settle(chance=0)
    assert 0 in state.world.head.rows
