"""The rows of the tables' heads, read by PyIceberg past every proxy and past the bridges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tests.chaos.contents import digest

NAMESPACE = "kafka"
_COLUMNS = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key", "_kafka_headers", "_kafka_value")


class LakeRows:
    """Tables by topic id."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._catalog: Catalog = load_catalog("chaos", **properties)

    def table(self, topic_id_hex: str) -> Table | None:
        """The table whose properties name this id, in hexadecimal."""
        for name in self._catalog.list_tables(NAMESPACE) if self._catalog.namespace_exists(NAMESPACE) else ():
            found = self._catalog.load_table(name)
            if topic_id_hex in {value.replace("-", "") for value in found.properties.values()}:
                return found
        return None

    def offsets(self, topic_id_hex: str) -> dict[int, set[int]]:
        """Offsets of the rows by partition: cheap, to see whether all is there."""
        found = self.table(topic_id_hex)
        if found is None or found.current_snapshot() is None:
            return {}
        rows = found.scan(selected_fields=_COLUMNS[:2]).to_arrow()
        by_partition: dict[int, set[int]] = {}
        for number in pc.unique(rows["_kafka_partition"]).to_pylist():
            mine = rows.filter(pc.equal(rows["_kafka_partition"], number))
            by_partition[number] = set(mine["_kafka_offset"].to_pylist())
        return by_partition

    def rows(self, topic_id_hex: str) -> dict[int, list[tuple[int, int | None, bytes]]]:
        """Offset, timestamp in milliseconds and digest of every row, by partition."""
        found = self.table(topic_id_hex)
        by_partition: dict[int, list[tuple[int, int | None, bytes]]] = defaultdict(list)
        if found is None or found.current_snapshot() is None:
            return by_partition
        rows = found.scan().to_arrow()
        values = _values(rows)
        columns = [rows[name].to_pylist() for name in ("_kafka_partition", "_kafka_offset", "_kafka_key")]
        micros = pc.cast(rows["_kafka_timestamp"], pa.int64()).to_pylist()
        headers = rows["_kafka_headers"].to_pylist()
        for partition, offset, key, when, held, value in zip(*columns, micros, headers, values, strict=True):
            named = [(one["key"], one["value"]) for one in held or ()]
            stamp = None if when is None else when // 1000
            by_partition[partition].append((offset, stamp, digest(key, value, named)))
        return by_partition


def _values(rows: pa.Table) -> list[bytes | None]:
    """Under the string rule a value that is text is in a column of its own."""
    raw = rows["_kafka_value"].to_pylist()
    if "value" not in rows.column_names:
        return raw  # type: ignore[no-any-return]
    texts = rows["value"].to_pylist()
    return [one if text is None else text.encode() for one, text in zip(raw, texts, strict=True)]
