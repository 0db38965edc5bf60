"""The table against a read_committed consumer, row by row, and fetches against what the producers sent."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.e2e.e2e_support import Log, Rec, read, rows_by_offset, same
from tierberg.stack.errors import StackError
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.waiting import wait_for

PUBLISH_S = 75


def upwards(records: Mapping[int, Rec], first: int) -> dict[int, Rec]:
    """Those from offset `first` on."""
    return {offset: record for offset, record in records.items() if offset >= first}


def table_rows(catalog: Catalog, table: str) -> dict[int, Rec]:
    """Offset → record of the table's head; empty while there is no table. Fails when an offset is there twice."""
    try:
        return rows_by_offset(catalog.load_table(table).scan().to_arrow())
    except NoSuchTableError:
        return {}


def wait_published(catalog: Catalog, table: str, committed: Mapping[int, Rec], first: int) -> dict[int, Rec]:
    """The table's rows, once those from offset `first` on have the offsets of `committed`."""
    wanted = upwards(committed, first).keys()
    seen: dict[int, Rec] = {}

    def there() -> bool:
        seen.clear()
        seen.update(table_rows(catalog, table))
        return upwards(seen, first).keys() == wanted

    try:
        wait_for(f"{len(wanted)} rows in {table}", there, PUBLISH_S, 0.5)
    except StackError as error:
        missing, extra = sorted(wanted - seen.keys()), sorted(upwards(seen, first).keys() - wanted)
        detail = f"{len(missing)} missing, first {missing[:3]}; {len(extra)} unexpected, first {extra[:3]}"
        raise AssertionError(f"{error}: {detail}") from error
    return seen


def compare(broker: KafkaBroker, catalog: Catalog, topic: str, log: Log, *, start: int, rows_from: int) -> None:
    """Fails unless table, consumers and producers agree.

    Args:
        broker: whose local disk has none of the topic's records any more.
        catalog: where the table is.
        topic: compared in partition 0.
        log: what the producers were told.
        start: first offset of Kafka's log; consumers read from there.
        rows_from: from here the table must have every committed record, below it may have some.
    """
    rows = wait_published(catalog, f"kafka.{topic}", log.committed, rows_from)
    committed = read(broker, topic, start=start)
    same(committed, upwards(log.committed, start))
    same(upwards(rows, max(start, rows_from)), upwards(committed, rows_from))
    below = {offset: log.committed.get(offset) for offset in rows if offset < max(start, rows_from)}
    assert {offset: rows[offset] for offset in below} == below, "rows below the start that were never committed"
    everything = read(broker, topic, start=start, isolation="read_uncommitted")
    same(everything, dict(sorted(upwards(log.everything, start).items())))
