"""Credentials that a catalog lends with a table, and how long they last.

A REST catalog may answer a load with keys to the table's files ("vended credentials"). Whoever loads the table anew
gets new ones; a table that was loaded before a long run of derived files may hold some that end before its manifests
are written. Servers that cache what they lend say when it ends; others do not, so its age counts as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_catalog.commit.head import Head
from iceberg_catalog.limits import LENT_AGE_MS_MAX, LENT_LEFT_MS_MIN

#: Property of a table's FileIO: when its credentials were lent, milliseconds since the epoch.
LENT_AT: Final = "tierberg.lent-at-ms"

_CREDENTIAL = re.compile(r"s3\.secret-access-key|gcs\.oauth2\.token|adls\.(sas-token|token)(\..*)?")
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at|adls\.sas-token-expires-at-ms(\..*)?"
)


def stamp(table: Table, lent: Iterable[Mapping[str, Any]]) -> None:
    """Notes on the table's FileIO that its credentials were lent now, if there are any among `lent`."""
    if any(_CREDENTIAL.fullmatch(name) for properties in lent for name in properties):
        table.io.properties[LENT_AT] = str(_now_ms())


def renewed(catalog: Catalog, head: Head) -> Head:
    """The same head, with credentials that outlast a commit. One request when they might not; none otherwise.

    Raises:
        What the catalog raises passes through.
    """
    properties = head.table.io.properties
    lent_at = properties.get(LENT_AT)
    if lent_at is None:
        return head
    now = _now_ms()
    ends = [int(value) for name, value in properties.items() if _ENDS.fullmatch(name)]
    if now - int(lent_at) <= LENT_AGE_MS_MAX and min(ends, default=now + LENT_LEFT_MS_MIN) - now >= LENT_LEFT_MS_MIN:
        return head
    given = head.table
    fresh = catalog.load_table(given.name())
    if fresh.metadata.table_uuid != given.metadata.table_uuid:
        return head
    return replace(head, table=Table(given.name(), given.metadata, given.metadata_location, fresh.io, catalog))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
