"""Between the pieces of one step it is seen that nobody waits for the copy any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rsm_bridge.errors import BridgeError
from rsm_bridge.serving.copy.attempt import _pieces

ROWS = pa.record_batch({"a": [1]})


class Columns:
    """Makes three pieces; counts those that were begun."""

    def __init__(self) -> None:
        self.begun = 0

    def rows(self, _: pa.RecordBatch) -> Iterator[int]:
        for number in range(3):
            self.begun += 1
            yield number


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_client_that_goes_ends_the_work_with_the_piece_it_is_at(last: int) -> None:
    columns: Any = Columns()

    def check() -> None:
        if columns.begun >= last:
            raise BridgeError("cancelled", "the broker ended the call")

    with pytest.raises(BridgeError, match="ended the call"):
        list(_pieces(columns, check, ROWS))
    assert columns.begun == last


def test_pieces_go_on_while_somebody_waits() -> None:
    columns: Any = Columns()
    found: list[Any] = list(_pieces(columns, lambda: None, ROWS))
    assert found == [0, 1, 2]
