"""What tables of the catalog tell of topics that no index names: all indexes of theirs are gone, or damaged.

A topic whose every index is lost leaves the store without a trace; its table still says whose it is. So do tables of
topics that were deleted, of other stores and of other clusters: these are told apart by what their rows, states and
data paths say (storage/segments/lost_rows.py). Kafka need not be asked for that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from iceberg_catalog.tables.names import Owner, is_name_of
from iceberg_catalog.tables.schema import DATA_PATH
from iceberg_catalog.tables.tables import load_existing, rows_in, stamped_owner
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import may_pass
from rsm_bridge.limits import STATUS_LOST_TABLES_MAX
from rsm_bridge.metrics.progress.facts import Facts, LostTopic
from rsm_bridge.storage.keys import stored_key
from rsm_bridge.storage.object_store import ObjectStore, first_line
from rsm_bridge.storage.segments.lost_rows import lost_rows
from rsm_bridge.words import plural

_Name = tuple[str, ...]


@dataclass(slots=True)
class FoundTables:
    """What was found.

    Attributes:
        lost: by topic id, topics that the store has nothing of and whose table has rows.
        names: by topic id, names of topics that the store has something of.
        unread: why not every table was looked at; None: all were.
    """

    lost: dict[str, LostTopic] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unread: str | None = None


def look_at_tables(
    catalog: Catalog, store: ObjectStore, settings: Settings, facts: Facts, ends_at: float
) -> FoundTables:
    """Looks at tables that no topic of the store is known to have, STATUS_LOST_TABLES_MAX at most; each is a request.

    Where one topic was asked for and the store has it, only at those that may be that topic's by their names.

    Args:
        catalog: of the tables. One that lists nothing is asked for the plain names of Kafka's topics.
        store: to be asked again of a topic before it is called lost.
        settings: have the namespace and the names.
        facts: what store and Kafka said.
        ends_at: monotonic seconds.

    Raises:
        Exception: what the catalog raises that fails to list at all.
    """
    found, levels = FoundTables(), tuple(settings.catalog.namespace.split("."))
    kafka = {} if facts.kafka is None else {topic.topic_id: topic.topic for topic in facts.kafka.topics.values()}
    there = facts.stored.keys() | facts.topics_unread
    likely = [(*levels, settings.table_of(name)) for topic_id, name in kafka.items() if topic_id not in there]
    try:
        listed = {tuple(item) for item in catalog.list_tables(levels)}
    except NoSuchNamespaceError:
        return found
    except Exception as error:  # noqa: BLE001 - a right that it does not give, or nothing it can do
        listed = set(likely)
        found.unread = f"the catalog does not list the tables of {settings.catalog.namespace}: {first_line(error)}"
    names = _unknown(listed, likely, settings, facts)
    failed: list[_Name] = []
    looked = 0
    for name in names[:STATUS_LOST_TABLES_MAX]:
        if time.monotonic() > ends_at:
            break
        looked += 1
        try:
            table = load_existing(catalog, name)
            owner = None if table is None else stamped_owner(table)
            if table is not None and owner is not None:
                _judge(store, table, owner, kafka, facts, found)
        except Exception:  # noqa: BLE001 - one table's matter; who else needs it says what is wrong with it
            failed.append(name)
    if looked < len(names):
        found.unread = f"{looked:,} of {plural(len(names), 'table')} without a known topic were looked at"
    elif failed and found.unread is None:
        found.unread = f"{plural(len(failed), 'table')} cannot be read, first {'.'.join(failed[0])}"
    return found


def _unknown(listed: set[_Name], likely: Iterable[_Name], settings: Settings, facts: Facts) -> list[_Name]:
    """Those of the listed tables that are to be looked at, the likeliest first."""
    known = {topic.table.name for topic in facts.stored.values() if topic.table is not None}
    names = [name for name in dict.fromkeys((*likely, *sorted(listed))) if name in listed]
    names = [name for name in names if ".".join(name) not in known]
    if (topic := facts.wanted) is None:
        return names
    own = [name for name in names if is_name_of(name[-1], topic, settings.table_of)]
    if any(stored.topic == topic for stored in facts.stored.values()):
        return own
    return [*own, *(name for name in names if name not in own)]


def _judge(
    store: ObjectStore, table: Table, owner: Owner, kafka: Mapping[str, str], facts: Facts, found: FoundTables
) -> None:
    topic_id, name = owner.topic_id.hex(), ".".join(table.name())
    if topic_id in facts.stored or topic_id in facts.topics_unread:
        found.names[topic_id] = owner.topic
        return
    if topic_id not in kafka and stored_key(store, table.properties.get(DATA_PATH, "")) is None:
        return  # of another store, where its topic may be well
    try:
        rows = lost_rows(store, table, owner)
    except Exception as error:
        if may_pass(error):
            raise
        rows = rows_in(table)  # damaged as well: that all of them were deleted, nothing says
    if rows:
        found.lost[topic_id] = LostTopic(kafka.get(topic_id, owner.topic), name, rows)
