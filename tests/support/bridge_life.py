"""One life of a bridge with the embedded defaults: what is tiered in it, read back and published."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.config.settings import Settings
from tests.support.bridge_process import bridge_thread
from tests.support.eventually import eventually
from tests.support.shim_client import Segment, ShimClient


def life_of(settings: Settings, topic: str, segment: Segment | None, count: int) -> list[dict[str, Any]]:
    """The rows of the topic's table, by offset, once there are `count`. segment: copied before; None: nothing is."""
    rows: list[dict[str, Any]] = []
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        if segment is not None:
            assert shim.fetch(shim.copied(segment)) == segment.data
        with closing(open_catalog(embedded_settings(settings.data_dir))) as catalog:
            name = f"kafka.{topic}"

            def there() -> bool:
                if not catalog.table_exists(name):
                    return False
                rows[:] = catalog.load_table(name).scan().to_arrow().to_pylist()
                return len(rows) == count

            eventually(there)
    return sorted(rows, key=lambda row: int(row["_kafka_offset"]))
