"""What `tierberg requeue` does, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from converter.errors import TierbergError
from converter.types import ConvertOptions
from iceberg_catalog.errors import CatalogError
from rsm_bridge.config.topics import stored_format
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import MIB
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.lease import leased
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.storage.segments.known import KnownSegment, owner_of, read_segments
from rsm_bridge.storage.segments.topic_segments import chosen_topics
from rsm_bridge.tables.context import TableContext, table_context
from rsm_bridge.tables.maintain.beside_engines import refuse_table_beside_engines
from rsm_bridge.tables.maintain.maintain import observe
from rsm_bridge.tables.maintain.requeue import RepairRun, convert
from rsm_bridge.tables.maintain.requeue_away import not_added
from rsm_bridge.values.typed.topics import opened_typed_topics
from rsm_bridge.words import plural


def requeue(backend: Backend, topic: str | None, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """Converts verbatim segments of all topics, or one, and brings their rows into the tables.

    Args:
        backend: store and catalog.
        topic: its name; None: all. Of a named one all rows come that live segments have and the table lacks.
        dry_run: change nothing, say what would be done.
        say: receives each line.

    Raises:
        BridgeError: `not_found` when the store has nothing of the topic; `internal` when segments could not be
            converted, after all others were; `store_unavailable`.
        TierbergError: the first topic's that could not be, after all others were: an index is damaged, the table holds
            what others did, a bridge is maintaining it, or the commit did not land. At once when the catalog is away.
            What else catalog and storage raise passes through. Run it again.
    """
    failed: list[tuple[str, str]] = []
    refused: list[TierbergError] = []
    for topic_id, name in chosen_topics(backend.store, topic).items():
        try:
            segments = read_segments(backend.store, topic_id)
            if segments:
                failed += _one(backend, topic_id, segments, of_all=topic is not None, dry_run=dry_run, say=say)
        except StoreError:
            raise
        except TierbergError as error:
            if isinstance(error, CatalogError) and error.kind == "unavailable":
                raise
            say(f"{name}: stays as it is: {first_line(error)}")
            refused.append(error)
    if refused:
        raise refused[0]
    if failed:
        key, why = failed[0]
        raise BridgeError("internal", f"{len(failed)} segments stay as they are; {key}: {why.removeprefix(f'{key}: ')}")


def _one(
    backend: Backend,
    topic_id: bytes,
    segments: Sequence[KnownSegment],
    *,
    of_all: bool,
    dry_run: bool,
    say: Callable[[str], None],
) -> list[tuple[str, str]]:
    """One topic id; returns what could not be converted. of_all: see RepairRun.repair()."""
    name = owner_of(segments).topic
    rule = backend.settings.rule(name)
    wanted = [known for known in segments if known.live and known.withheld]
    if not wanted and not any((of_all and known.live) or known.requeued for known in segments):
        return []
    if rule.mode == "verbatim":
        say(f"{name}: {len(wanted)} segments stay as they are: the rule of the topic says mode: verbatim")
        return []
    context = table_context(backend.settings, backend.store)
    refuse_table_beside_engines(backend.catalog, wanted, context)
    if dry_run:
        late = _late(backend, topic_id, context, of_all=of_all)
        more = f", rows of {plural(late, 'other segment')} come below the frontier" if late else ""
        say(f"{name}: {len(wanted)} segments would get their rows{more} (dry run)")
        return []
    batch_bytes_max = backend.settings.limits.decompressed_batch_mib * MIB
    options = ConvertOptions(stored_format(rule.value_format), "table", batch_bytes_max)
    opened = opened_typed_topics(backend.settings, backend.store, lambda: backend.catalog)
    with leased(backend.store, topic_id), opened as topics:
        done = convert(backend.store, wanted, options, typed=topics.table(owner_of(segments)) is not None)
        run = RepairRun(
            store=backend.store,
            catalog=backend.catalog,
            topic_id=topic_id,
            context=replace(context, typed=topics.table),
        )
        repaired = run.repair(of_all=of_all)
    undecided = f", {done.undecided} of them in transactions their segment leaves open" if done.undecided else ""
    came = f"{repaired.files} files came below the frontier"
    say(f"{name}: {done.segments} segments have {done.rows} rows{undecided}; {came}")
    if repaired.waiting:
        # Nothing but this command adds rows there.
        say(f"{name}: {repaired.waiting} rows wait for the end of a transaction: run it again once that is tiered")
    return done.failed


def _late(backend: Backend, topic_id: bytes, context: TableContext, *, of_all: bool) -> int:
    """How many segments have rows that the table lacks below its frontier."""
    seen = observe(backend.store, backend.catalog, topic_id, context)
    if seen.head is None:
        return 0
    policy = context.policy(owner_of(seen.segments).topic, context.clock_ms())
    late = not_added(seen.segments, seen.states, seen.head.files, policy, seen.head.look, of_all=of_all)
    return 0 if late is None else late.segments
