"""Deadlines and sizes of the benchmarks. Seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

#: A client process from its start to its ready line.
CLIENT_READY_S: Final = 60.0
#: A client's work, from go to its result.
CLIENT_WORK_S: Final = 300.0
#: Without a record for this long a consumer gives up.
CONSUME_STALL_S: Final = 60.0
#: Until everything produced is in the remote store and gone from the broker's disk.
TIERED_S: Final = 300.0
#: One gRPC call to a bridge, a whole copy included.
CALL_S: Final = 600.0
#: Payload of a copy frame, as the shim sends it.
FRAME_BYTES: Final = 1024 * 1024
#: What a broker reads of a fetch before it hangs up (the default fetch size of a partition).
FETCH_BYTES: Final = 1024 * 1024
#: One forced collection of a broker, and the pause before the next.
COLLECTION_S: Final = 30.0
COLLECTION_PAUSE_S: Final = 0.2
#: One run of a projection's command.
PROJECTION_S: Final = 900.0
