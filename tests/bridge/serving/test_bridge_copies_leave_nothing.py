"""What an ended copy had in memory is free at once, not when Python next looks for objects that hold one another."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from converter.batches.codecs import PlainBuffer
from converter.batches.framing import Framer
from converter.batches.parser import SegmentParser
from converter.segment.writer import SegmentWriter
from converter.types import IndexType
from rsm_bridge.serving.copy.attempt import CopyAttempt
from rsm_bridge.serving.copy.call import CopyCall
from rsm_bridge.serving.copy.files_beside import CopyFiles
from rsm_bridge.serving.copy.frame_feed import FrameFeed
from rsm_bridge.values.typed.copy import TypedCopy
from tests.oracle.transactions import producer_snapshot
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, copy_messages, segment_of
from tierberg.stack.waiting import wait_for

OF_A_COPY = (
    CopyAttempt,
    CopyCall,
    CopyFiles,
    Framer,
    FrameFeed,
    PlainBuffer,
    SegmentParser,
    SegmentWriter,
    TypedCopy,
)
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"]}]})
TYPED: dict[str, Any] = {
    "value_format": "avro",
    "value_schema": {"from": "inline", "text": SCHEMA},
    "value_bytes": "proven",
}


def good() -> Segment:
    snapshot = producer_snapshot([(number, -1) for number in range(1000)])
    return segment_of(LogBuilder().fill(batches=20, size=500), files={IndexType.PRODUCER_SNAPSHOT: snapshot})


def cut_off() -> Segment:
    """Whose last batch is not whole: the copy is refused in mid-parse."""
    segment = good()
    return replace(segment, data=segment.data[:-7])


@contextmanager
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> Counter[str]:
    return Counter(type(item).__name__ for item in gc.get_objects() if isinstance(item, OF_A_COPY))


@pytest.mark.parametrize("make", [good, cut_off])
@pytest.mark.parametrize("rule", [{"value_format": "raw"}, TYPED], ids=["raw", "typed"])
def test_nothing_of_a_copy_outlives_its_call(tmp_path: Path, make: Any, rule: dict[str, Any]) -> None:
    settings = test_settings(tmp_path / "data", topics=[{"pattern": ".*", **rule}])
    with bridge_thread(settings) as running, ShimClient(running.address) as shim, without_collections():
        for _ in range(3):
            with pytest.raises(ShimError, match="beyond the segment") if make is cut_off else nullcontext():
                shim.copy(make())
        # The handler's last frame ends a moment after its answer.
        wait_for("the calls to end", lambda: not alive(), 20)


@pytest.mark.parametrize("rule", [{"value_format": "raw"}, TYPED], ids=["raw", "typed"])
def test_nothing_of_a_copy_outlives_its_client(tmp_path: Path, rule: dict[str, Any]) -> None:
    settings = test_settings(tmp_path / "data", topics=[{"pattern": ".*", **rule}])
    hold = threading.Event()

    def without_end(segment: Segment) -> Iterator[bytes]:
        yield from list(copy_messages(segment))[:-1]
        hold.wait(60)

    with bridge_thread(settings) as running, ShimClient(running.address) as shim, without_collections():
        call: Any = shim.stub("stream_stream", "CopySegment")(without_end(good()), metadata=HEADERS)
        wait_for("the copy to run", lambda: any(kind == "CopyAttempt" for kind in alive()), 20)
        call.cancel()
        wait_for("the call to end", lambda: not alive(), 20)
        hold.set()
