"""One checksum, computed apart in each world.

A record's canonical text joins, with `|`: partition, offset, timestamp in milliseconds, key, value, headers. Key and
value are upper-case hexadecimal, `~` when null. Headers are joined with `,`, each `name=value` with both in hexadecimal
and `~` for a null value. The checksum of a set of records is the sum over them of the first 60 bits of the text's MD5:
it does not depend on their order, and a changed, missing or doubled record changes it.

The same text is built here in Python for what Kafka's consumer gave, in Spark SQL and in DuckDB's SQL.
"""

from __future__ import annotations

from hashlib import md5

from tierberg.demo.events import Headers

_NULL = "~"


def canonical(
    partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> str:
    """The canonical text of one record."""
    names = ",".join(f"{_hex(name.encode())}={_hex(content)}" for name, content in headers)
    return f"{partition}|{offset}|{timestamp_ms}|{_hex(key)}|{_hex(value)}|{names}"


def checksum_term(text: str) -> int:
    """What one canonical text adds to the sum: 60 bits."""
    return int(md5(text.encode(), usedforsecurity=False).hexdigest()[:15], 16)


def _hex(content: bytes | None) -> str:
    return _NULL if content is None else content.hex().upper()


#: A Spark SQL expression over the table's columns; gives the canonical text.
SPARK_CANONICAL = """concat_ws('|',
    cast(_kafka_partition AS string), cast(_kafka_offset AS string), cast(unix_millis(_kafka_timestamp) AS string),
    coalesce(hex(_kafka_key), '~'), coalesce(hex(_kafka_value), '~'),
    concat_ws(',', transform(_kafka_headers, h -> concat(hex(h.key), '=', coalesce(hex(h.value), '~')))))"""

#: The same for DuckDB.
DUCKDB_CANONICAL = """concat_ws('|',
    _kafka_partition, _kafka_offset, epoch_ms(_kafka_timestamp),
    coalesce(hex(_kafka_key), '~'), coalesce(hex(_kafka_value), '~'),
    array_to_string(
        list_transform(_kafka_headers, lambda h: concat(hex(h.key), '=', coalesce(hex(h.value), '~'))), ','))"""


def spark_sum(text: str) -> str:
    """The checksum over all rows in Spark SQL; `text` is the expression that gives a row's text."""
    return f"sum(cast(conv(substr(md5({text}), 1, 15), 16, 10) AS decimal(38, 0)))"


def duckdb_sum(text: str) -> str:
    """The same for DuckDB."""
    return f"sum(('0x' || substr(md5({text}), 1, 15))::hugeint)"


SPARK_CHECKSUM = spark_sum(SPARK_CANONICAL)
DUCKDB_CHECKSUM = duckdb_sum(DUCKDB_CANONICAL)
