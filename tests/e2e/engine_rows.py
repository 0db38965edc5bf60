"""One checksum per partition over all columns, the same from Kafka's records, from Spark SQL and from Trino SQL.

A row's canonical text joins, with `|`: partition, offset, timestamp in milliseconds, the same as the clock of ZONE
shows it, timestamp type, key, headers, `_kafka_value`, `_kafka_value_size`, and under the string rule `value` and
`_kafka_error`. Bytes and texts are upper-case hexadecimal of their bytes, `~` is null; headers are joined with `,`,
each `name=value`. A partition's checksum is the sum over its rows of the first 60 bits of the text's SHA-256: it does
not depend on their order, and a changed, missing or doubled row changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final
from zoneinfo import ZoneInfo

from tests.e2e.e2e_support import Rec

#: Half an hour off every full hour, so that a wrong zone shows.
ZONE: Final = "Asia/Kolkata"
_NULL: Final = "~"


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows of a partition, and their checksum."""

    rows: int
    checksum: int


def kafka_sums(consumed: Mapping[int, Mapping[int, Rec]], timestamp_type: int, *, text: bool) -> dict[int, Sum]:
    """What an engine must say of a table with these records, by partition. `text`: under the string rule."""
    return {
        partition: _sum(_canonical(partition, offset, record, timestamp_type, text) for offset, record in found.items())
        for partition, found in consumed.items()
    }


def _sum(texts: Iterable[str]) -> Sum:
    terms = [int(sha256(text.encode()).hexdigest()[:15], 16) for text in texts]
    return Sum(len(terms), sum(terms))


def _canonical(partition: int, offset: int, record: Rec, timestamp_type: int, text: bool) -> str:
    clock = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=record.timestamp_ms)
    fields = [
        str(partition),
        str(offset),
        str(record.timestamp_ms),
        clock.astimezone(ZoneInfo(ZONE)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
        str(timestamp_type),
        _hex(record.key),
        ",".join(f"{_hex(name.encode())}={_hex(content)}" for name, content in record.headers),
    ]
    size = _NULL if record.value is None else str(len(record.value))
    if not text:
        return "|".join([*fields, _hex(record.value), size])
    valid = record.value is not None and _is_text(record.value)
    raw, value = (None, record.value) if valid else (record.value, None)
    error = "invalid_utf8" if record.value is not None and not valid else _NULL
    return "|".join([*fields, _hex(raw), size, _hex(value), error])


def _hex(content: bytes | None) -> str:
    return _NULL if content is None else content.hex().upper()


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_SPARK: Final = """concat_ws('|',
    cast(_kafka_partition AS string), cast(_kafka_offset AS string),
    coalesce(cast(unix_millis(_kafka_timestamp) AS string), '~'),
    coalesce(date_format(_kafka_timestamp, 'yyyy-MM-dd HH:mm:ss.SSS'), '~'),
    coalesce(cast(_kafka_timestamp_type AS string), '~'), coalesce(hex(_kafka_key), '~'),
    if(_kafka_headers IS NULL, '~',
       concat_ws(',', transform(_kafka_headers, h -> concat(hex(h.key), '=', coalesce(hex(h.value), '~'))))),
    coalesce(hex(_kafka_value), '~'), coalesce(cast(_kafka_value_size AS string), '~'){more})"""
_SPARK_TEXT: Final = ", coalesce(hex(value), '~'), coalesce(_kafka_error, '~')"

_TRINO: Final = """concat_ws('|',
    cast(_kafka_partition AS varchar), cast(_kafka_offset AS varchar),
    coalesce(cast(date_diff('millisecond', from_unixtime(0), _kafka_timestamp) AS varchar), '~'),
    coalesce(format_datetime(at_timezone(_kafka_timestamp, current_timezone()), 'yyyy-MM-dd HH:mm:ss.SSS'), '~'),
    coalesce(cast(_kafka_timestamp_type AS varchar), '~'), coalesce(to_hex(_kafka_key), '~'),
    if(_kafka_headers IS NULL, '~',
       array_join(transform(_kafka_headers,
                            h -> concat(to_hex(to_utf8(h.key)), '=', coalesce(to_hex(h.value), '~'))), ',')),
    coalesce(to_hex(_kafka_value), '~'), coalesce(cast(_kafka_value_size AS varchar), '~'){more})"""
_TRINO_TEXT: Final = ", coalesce(to_hex(to_utf8(value)), '~'), coalesce(_kafka_error, '~')"


def spark_query(table: str, *, text: bool) -> str:
    """Partition, rows and checksum in Spark's SQL; the session's zone must be ZONE."""
    canonical = _SPARK.format(more=_SPARK_TEXT if text else "")
    term = f"cast(conv(substr(sha2({canonical}, 256), 1, 15), 16, 10) AS decimal(38, 0))"
    return f"SELECT _kafka_partition, count(*), sum({term}) FROM {table} GROUP BY 1"


def trino_query(table: str, *, text: bool) -> str:
    """The same in Trino's."""
    canonical = _TRINO.format(more=_TRINO_TEXT if text else "")
    term = f"cast(from_base(substr(to_hex(sha256(to_utf8({canonical}))), 1, 15), 16) AS decimal(38, 0))"
    return f"SELECT _kafka_partition, count(*), sum({term}) FROM {table} GROUP BY 1"
