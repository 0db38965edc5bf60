"""`tierberg verify`: reads every live segment again and proves it.

Two proofs per segment: the stored objects have the sizes and CRC32C the index recorded, and every batch is rebuilt and
compared with its checksum (what a consumer would be served). Then the tables: table.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from pyiceberg.table import Table

from converter.errors import SegmentError
from converter.index.model import Directory
from iceberg_catalog.connect.open import open_catalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import find_table, owned_tables
from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, may_pass
from rsm_bridge.limits import VERIFY_LOOKS_MAX
from rsm_bridge.status.verify.table import check_table
from rsm_bridge.storage.backend import catalog_properties
from rsm_bridge.storage.intact import require_intact
from rsm_bridge.storage.keys import INDEX_ROOT, index_prefix, parse_index_key
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_made_store
from rsm_bridge.storage.segments.chunks import cut
from rsm_bridge.storage.segments.known import KnownSegment, read_known
from rsm_bridge.storage.segments.lost_rows import lost_rows
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.table_records import read_records
from rsm_bridge.storage.tombstone import MAGIC, is_tombstone


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """What was read and what is wrong with it. `damages` and `unread` are one line each.

    What could not be read because store or catalog did not answer is `unread`: nobody knows whether it is damaged.
    """

    segments: int = 0
    tombstones: int = 0
    bytes: int = 0
    rows: int = 0
    tables: int = 0
    damages: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def failed(self, what: str, error: SegmentError | BridgeError | CatalogError) -> None:
        """Notes an error under what it says: damage, or no answer."""
        where = self.unread if may_pass(error) else self.damages
        where.append(f"{what}: {error.kind}: {str(error).removeprefix(f'{what}: ')}")

    def lines(self) -> list[str]:
        """The report for a terminal; damages first."""
        verdict = "no damage" if not self.damages else f"{len(self.damages)} damaged"
        if self.unread:
            verdict += f" seen, {len(self.unread)} could not be read"
        return [
            *self.damages,
            *self.unread,
            (
                f"{self.segments} segments with {self.bytes} served bytes and {self.tombstones} tombstones read, "
                f"{self.rows} rows in {self.tables} tables compared: {verdict}"
            ),
        ]


def verify_store(config: Path | None, data_dir: Path | None, topic: str | None) -> VerifyReport:
    """Verifies all topics, or one.

    Raises:
        SettingsError: the configuration cannot be used.
        BridgeError: `store_unavailable`: the store cannot be listed; `not_found`: it has nothing of the topic, no table
            is of that name, and nothing could not be read either.
    """
    settings = load_settings(config, {"data_dir": data_dir})
    store = open_made_store(settings)
    report = VerifyReport()
    topics: dict[bytes, list[KnownSegment]] = defaultdict(list)
    with ThreadPoolExecutor(2) as helpers:
        reader = SegmentReader(store, helpers)
        for known in _segments(store, report, topic=topic):
            if topic is not None and known.owner.topic != topic:
                continue
            topics[known.key.topic_id].append(known)
            if known.live:
                _verify_segment(reader, known, report)
            else:
                report.tombstones += 1
    known_tables = _verify_tables(settings, store, topics, report, topic)
    if topic is not None and not (topics or known_tables or report.damages or report.unread):
        raise BridgeError("not_found", f"the store has nothing of a topic {topic}")
    return report


def _segments(
    store: ObjectStore, report: VerifyReport, prefix: str = INDEX_ROOT, *, topic: str | None = None
) -> Iterator[KnownSegment]:
    """What is under a prefix, in the order of keys: all of one topic id together.

    topic: indexes that cannot be read are not told where others of their topic id say that it is not this topic's.
    """
    named = ((parse_index_key(listed.key), listed) for listed in store.list_after(prefix))
    for _, same_id in groupby(named, lambda pair: None if pair[0] is None else pair[0].topic_id):
        unread = VerifyReport()
        name: str | None = None
        for key, listed in same_id:
            if key is None:
                report.damages.append(f"{listed.key}: not a key of an index")
                continue
            try:
                known = read_known(store, key, listed)
            except ObjectNotFoundError:
                _note_denied(store, listed.key, unread)
            except (SegmentError, BridgeError) as error:
                unread.failed(listed.key, error)
            else:
                name = known.owner.topic
                yield known
        if None in (topic, name) or name == topic:
            report.damages.extend(unread.damages)
            report.unread.extend(unread.unread)


def _note_denied(store: ObjectStore, key: str, report: VerifyReport) -> None:
    """A key that was listed and cannot be read: gone by now, or unread when the store lists it still, or is away."""
    try:
        confirm_gone(store, [key])
    except BridgeError as error:
        report.failed(key, error)


def _verify_segment(reader: SegmentReader, known: KnownSegment, report: VerifyReport) -> None:
    report.segments += 1
    try:
        directory = reader.directory_at(known.listed.key, known.listed.size)
        for stored in (*directory.data_files, directory.kept):
            if stored is not None:
                require_intact(reader.store, stored)
        for kind in directory.files:
            reader.check_file(directory, kind)
        report.bytes += _replay(reader, directory)
    except (SegmentError, BridgeError) as error:
        if error.kind == "segment_deleted":
            report.segments -= 1  # while it was read
            return
        try:
            deleted = is_tombstone(reader.store.head_bytes(known.listed.key, len(MAGIC)))
        except ObjectNotFoundError:
            report.segments -= 1
            _note_denied(reader.store, known.listed.key, report)
            return
        except BridgeError:
            deleted = False
        if deleted:
            report.segments -= 1  # and its objects may go at any moment
        else:
            report.failed(known.listed.key, error)


def _replay(reader: SegmentReader, directory: Directory) -> int:
    served = 0
    for number in range(len(directory.blocks)):
        block = reader.block(directory, number)
        plan = cut(block)
        for first, end in zip(plan.starts, plan.starts[1:], strict=False):
            served += len(reader.chunk(directory, block, block.first_batch + first, block.first_batch + end - 1))
    if served != directory.summary.served_bytes:
        raise BridgeError(
            "corrupt_object", f"{served} bytes are served, the index says {directory.summary.served_bytes}"
        )
    return served


def _verify_known(
    store: ObjectStore,
    tables: Iterable[tuple[Table, Owner]],
    topics: Mapping[bytes, list[KnownSegment]],
    report: VerifyReport,
) -> None:
    """Every row at or above the floor has an index, or a tombstone, of its topic id; below are those of an archive.

    topics: listed before the tables were; what was copied meanwhile is listed again.
    """
    for table, owner in tables:
        if owner.topic_id in topics:
            continue
        try:
            rows = lost_rows(store, table, owner)
        except CatalogError as error:
            report.failed(f"table {'.'.join(table.name())}", error)
            continue
        if rows:
            report.damages.append(
                f"table {'.'.join(table.name())}: {rows} rows, and the store has nothing of topic id "
                f"{owner.topic_id.hex()}: is it the bridge's store?"
            )


def _verify_tables(
    settings: Settings,
    store: ObjectStore,
    topics: dict[bytes, list[KnownSegment]],
    report: VerifyReport,
    topic: str | None,
) -> int:
    """Those of the segments, and of this or any topic those of which the store has none; returns how many there are."""
    try:
        catalog = open_catalog(catalog_properties(settings))
    except CatalogError as error:
        report.failed("tables", error)
        return 0
    for segments in topics.values():
        owner = segments[0].owner
        find = partial(find_table, catalog, owner, namespace=settings.catalog.namespace, plain=settings.table_of)
        try:
            _verify_table(store, find, owner, segments, report)
        except (CatalogError, BridgeError, SegmentError) as error:
            report.failed(f"table of topic {owner.topic}", error)
            if may_pass(error):
                return 0  # store or catalog are away; each table more would wait for them
    try:
        tables = owned_tables(catalog, namespace=settings.catalog.namespace)
        wanted = [(table, owner) for table, owner in tables if topic in (None, owner.topic)]
        _verify_known(store, wanted, topics, report)
    except (CatalogError, BridgeError) as error:
        report.failed("tables", error)
        return 0
    return len(wanted)


def _verify_table(
    store: ObjectStore,
    find: Callable[[], Table | None],
    owner: Owner,
    segments: list[KnownSegment],
    report: VerifyReport,
) -> None:
    """Proves the table of one topic.

    Bridges go on meanwhile: what was published after `segments` were listed, or reclaimed after the table was loaded,
    looks like damage. So what is found is looked for again, the table loaded first and the segments listed after it,
    until nothing is left or nothing has changed in between, VERIFY_LOOKS_MAX times at most. Said is what was found
    every time.

    Raises:
        CatalogError, BridgeError, SegmentError: the table cannot be read.
    """
    damages: list[str] | None = None
    rows, table, seen = 0, None, None
    for number in range(VERIFY_LOOKS_MAX):
        table = find()
        if number:
            segments = list(_segments(store, VerifyReport(), index_prefix(owner.topic_id)))
        now = (table and table.metadata_location, [known.listed for known in segments])
        last, seen = now == seen or number + 1 == VERIFY_LOOKS_MAX, now
        try:
            rows, found = (0, _without_table(store, segments)) if table is None else check_table(store, table, segments)
        except (CatalogError, BridgeError, SegmentError):
            if last:
                raise
            continue
        damages = found if damages is None else [damage for damage in damages if damage in found]
        if last or not damages:
            break
    report.tables += table is not None
    report.rows += rows
    name = "" if table is None else f"{'.'.join(table.name())}: "
    report.damages.extend(f"table {name}{damage}" for damage in damages or ())


def _without_table(store: ObjectStore, segments: Sequence[KnownSegment]) -> list[str]:
    """What it means that the catalog has no table of these segments' topic."""
    if not any(known.live and known.data is not None for known in segments):
        return []
    written = next(iter(read_records(store, segments[0].owner.topic_id)), None)
    return [] if written is None else [f"{written.table}: it was written, and the catalog has no table of its topic"]
