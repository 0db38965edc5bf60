"""Values that a change event leaves out, since they did not change and the connector does not know them.

PostgreSQL does not send what it keeps out of line (TOAST) with an update that leaves it as it is, and Oracle no LOBs;
Debezium writes a placeholder in the form of the column ("Toasted values", `unavailable.value.placeholder`). Such a
column is null in what `select` sees, and keeps what the row had.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import operator
import uuid
from typing import Any


def left_out(column: Any, kind: Any, placeholder: str) -> Any | None:
    """Whether a value is the placeholder, as a condition that may be null; None where no value of the type can be.

    Args:
        column: Spark's.
        kind: its type.
        placeholder: as the connector has it; not empty.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, MapType, StringType

    raw = placeholder.encode()
    if isinstance(kind, StringType):
        return column.isin(*_texts(placeholder))
    if isinstance(kind, BinaryType):
        return column == functions.lit(raw)
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return functions.map_contains_key(column, placeholder)
    if not isinstance(kind, ArrayType):
        return None
    if isinstance(kind.elementType, IntegerType | LongType):
        return column == functions.array(*(functions.lit(byte).cast(kind.elementType) for byte in raw))
    if isinstance(kind.elementType, BinaryType):
        return column == functions.array(functions.lit(raw))
    if isinstance(kind.elementType, StringType):
        of_uuids = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
        forms = [column == functions.array(functions.lit(text)) for text in (*_texts(placeholder), of_uuids)]
        return functools.reduce(operator.or_, forms)
    return None


def _texts(placeholder: str) -> tuple[str, ...]:
    """It as text, as bytes in JSON (base64 or hexadecimal), and as an hstore in JSON's form."""
    raw = placeholder.encode()
    hstore = json.dumps({placeholder: placeholder}, separators=(",", ":"), ensure_ascii=False)
    return placeholder, base64.b64encode(raw).decode(), raw.hex(), hstore
