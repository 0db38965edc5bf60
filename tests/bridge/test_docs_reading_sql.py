"""The SQL of docs/reading.md runs in Spark and says what the page says."""

from __future__ import annotations

import re
import time
from hashlib import sha256
from pathlib import Path

import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tierberg.demo.spark import spark_session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reading.md"


def statements() -> list[str]:
    """What the page has for any engine and for Spark, on the demo's catalog."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"(?m)^(?=-- (?:Spark|Trino))", block) if part.strip()]
    return [part.replace("kafka.orders", "tierberg.kafka.orders") for part in parts if not part.startswith("-- Trino")]


def filled(folder: Path) -> float:
    """A table `orders` with offsets 0–9 and 15–19; the time before it was made, seconds since the epoch."""
    before = time.time()
    with bridge_thread(test_settings(folder)) as running, ShimClient(running.address) as shim:
        one = shim.copied(segment_of(LogBuilder().fill(batches=1, records=10)))
        shim.copied(segment_of(LogBuilder(next_offset=15).fill(batches=1, records=5), topic_id=one.topic_id))
        catalog = open_catalog(embedded_settings(folder))
        end = time.monotonic() + 30
        while not catalog.table_exists("kafka.orders") or catalog.load_table("kafka.orders").scan().count() < 15:
            assert time.monotonic() < end, "never published"
            time.sleep(0.1)
    return before


def checksum(folder: Path) -> int:
    """The page's, computed here from the rows that PyIceberg reads."""

    def hexed(content: bytes | None) -> str:
        return "~" if content is None else content.hex().upper()

    total = 0
    for row in open_catalog(embedded_settings(folder)).load_table("kafka.orders").scan().to_arrow().to_pylist():
        headers = ",".join(f"{hexed(item['key'].encode())}={hexed(item['value'])}" for item in row["_kafka_headers"])
        millis = round(row["_kafka_timestamp"].timestamp() * 1000)
        parts = [str(row["_kafka_offset"]), str(millis), hexed(row["_kafka_key"]), hexed(row["_kafka_value"]), headers]
        total += int(sha256("|".join(parts).encode()).hexdigest()[:15], 16)
    return total


# Py4J leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_says_how_far_the_table_is_complete(tmp_path: Path) -> None:
    before = filled(tmp_path / "data")
    by_offset, by_time, taken_back, by_content = statements()
    with spark_session(tmp_path / "data", tmp_path / "spark") as session:
        (row,) = session.sql(by_offset).collect()
        assert (row["_kafka_partition"], row["next_offset"]) == (0, 20)
        (row,) = session.sql(by_time).collect()
        assert before <= row["complete_up_to"].timestamp() <= time.time()
        assert [(row["k"], row["v"]) for row in session.sql(taken_back).collect()] == [
            ("tierberg.gaps", '{"0":[[10,14]]}')
        ]
        (row,) = session.sql(by_content).collect()
        assert (row["_kafka_partition"], row["records"], int(row["checksum"])) == (0, 15, checksum(tmp_path / "data"))
