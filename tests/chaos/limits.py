"""Deadlines and sizes of a chaos run. Seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

#: Records a second that all writers together aim at; faults keep them below it.
RATE: Final = 300.0
BURST_MAX: Final = 250
#: A producer is made anew, with another codec, after so many bursts.
BURSTS_PER_PRODUCER: Final = 12
#: What a producer keeps trying; then nobody knows what became of the record.
DELIVERY_S: Final = 40
FLUSH_S: Final = 60.0
TRANSACTION_TIMEOUT_S: Final = 20
#: An answer of the Java client: delivery, and a machine that is busy.
JAVA_ANSWER_S: Final = 120.0
COMMIT_S: Final = 60.0
INIT_S: Final = 60.0
#: A reader that runs beside the faults gives up a place after this time.
READER_S: Final = 15.0
READER_RECORDS: Final = 1500
#: A fault that moves a topic waits so long for those who write to it.
TOPIC_LOCK_S: Final = 150.0
#: Between two looks for new segment files of the brokers.
LINK_POLL_S: Final = 0.3
#: All replicas are in sync again after a broker came back.
IN_SYNC_S: Final = 180.0
#: A question to brokers of which some are away.
ADMIN_S: Final = 120.0
#: After deleteRecords, until brokers have written the log start down: three times their interval.
START_CHECKPOINT_S: Final = 1.5
#: After the faults: open transactions end, everything is tiered, everything is published.
TRANSACTIONS_END_S: Final = 180.0
TIERED_S: Final = 300.0
PUBLISHED_S: Final = 300.0
#: Closing records are so large that the second of two begins a new segment.
CLOSING_BYTES: Final = 600_000
CLOSING_EVERY_S: Final = 20.0
#: Without a record for this time a consumer is stuck.
CONSUMED_S: Final = 120.0
FETCH_BYTES: Final = 1 << 20
SOCKET_S: Final = 60.0
#: Examples quoted of each difference.
EXAMPLES: Final = 5
MEBIBYTE: Final = 1 << 20
DAY_S: Final = 86_400
