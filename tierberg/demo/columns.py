"""The columns of a flight: their types in both tables, and one checksum over all of them.

A flight's text joins its columns in the order of `COLUMNS` with `|`: whole numbers and texts as they are, delays as
doubles, the scheduled hour in milliseconds since 1970, `~` for null. It is built from the line of the data in Python,
and from the typed columns in Spark's and DuckDB's SQL, for both tables alike: JSON has the hour as text. The sum is
that of `tierberg.demo.canonical`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tierberg.demo.canonical import duckdb_sum, spark_sum
from tierberg.demo.events import Field, Flight

Kind = Literal["whole", "minutes", "text", "time"]

COLUMNS: Final[Mapping[str, Kind]] = {
    "year": "whole",
    "month": "whole",
    "day": "whole",
    "dep_time": "whole",
    "sched_dep_time": "whole",
    "dep_delay": "minutes",
    "arr_time": "whole",
    "sched_arr_time": "whole",
    "arr_delay": "minutes",
    "carrier": "text",
    "flight": "whole",
    "tailnum": "text",
    "origin": "text",
    "dest": "text",
    "air_time": "whole",
    "distance": "whole",
    "hour": "whole",
    "minute": "whole",
    "time_hour": "time",
}

_JSON_TYPES: Mapping[Kind, str] = {"whole": "long", "minutes": "long", "text": "string", "time": "string"}
_AVRO_TYPES: Mapping[Kind, str] = {"whole": "int", "minutes": "double", "text": "string", "time": "timestamptz"}
#: Iceberg's types of the columns: JSON's as the bridge infers them, Avro's as the schema says.
JSON_TYPES: Final = {name: _JSON_TYPES[kind] for name, kind in COLUMNS.items()} | {"_additional": "string"}
AVRO_TYPES: Final = {name: _AVRO_TYPES[kind] for name, kind in COLUMNS.items()}


def columns_text(flight: Flight) -> str:
    """The text of one flight, from the data's line."""
    return "|".join(_text(kind, flight.fields[name], flight) for name, kind in COLUMNS.items())


def _text(kind: Kind, value: Field, flight: Flight) -> str:
    if value is None:
        return "~"
    if kind == "time":
        return str(flight.timestamp_ms)
    return repr(float(value)) if kind == "minutes" else str(value)


_SPARK: Mapping[Kind, str] = {
    "whole": "cast(cast(`{}` AS bigint) AS string)",
    "minutes": "cast(cast(`{}` AS double) AS string)",
    "text": "`{}`",
    "time": "cast(unix_millis(cast(`{}` AS timestamp)) AS string)",
}
_DUCKDB: Mapping[Kind, str] = {
    "whole": '"{}"::bigint::varchar',
    "minutes": '"{}"::double::varchar',
    "text": '"{}"',
    "time": 'epoch_ms("{}"::timestamptz)::varchar',
}


def _joined(parts: Mapping[Kind, str]) -> str:
    texts = (f"coalesce({parts[kind].format(name)}, '~')" for name, kind in COLUMNS.items())
    return f"concat_ws('|', {', '.join(texts)})"


SPARK_COLUMNS: Final = spark_sum(_joined(_SPARK))
DUCKDB_COLUMNS: Final = duckdb_sum(_joined(_DUCKDB))
