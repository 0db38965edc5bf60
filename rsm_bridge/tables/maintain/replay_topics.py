"""What `tierberg replay-dead-letters` does, as lines for a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import check_layout
from rsm_bridge.errors import StoreError
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.lease import leased
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.storage.segments.known import owner_of, read_segments
from rsm_bridge.storage.segments.topic_segments import chosen_topics
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain.dead_letters import files_with_errors
from rsm_bridge.tables.maintain.replay import Replay, Replayed
from rsm_bridge.values.typed.schemas import ColumnsWaitError
from rsm_bridge.values.typed.topics import TypedTopics, opened_typed_topics


def replay(backend: Backend, topic: str | None, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """Decodes the dead letters of all topics, or one, again; those that decode now get their columns.

    Args:
        backend: store and catalog.
        topic: its name; None: all.
        dry_run: change nothing, say what would be done.
        say: receives each line.

    Raises:
        ColumnsWaitError: registry or catalog do not answer in time for a topic; the others had their turn.
        BridgeError: `not_found` when the store has nothing of the topic; `overloaded` when a bridge is maintaining the
            table.
        SettingsError, BridgeError, SegmentError, CatalogError, RetryRunError: and what else catalog and storage raise:
            the first topic's, after all others had their turn. Nothing needs undoing: run it again.
    """
    chosen = chosen_topics(backend.store, topic)
    # What the registry refuses is a dead letter already: it keeps no other row from its columns.
    opened = opened_typed_topics(
        backend.settings, backend.store, lambda: backend.catalog, dry_run=dry_run, patient=False
    )
    failed: list[Exception] = []
    with opened as topics:
        for topic_id, name in chosen.items():
            try:
                segments = read_segments(backend.store, topic_id)
                if not segments:
                    continue
                owner = owner_of(segments)
                with contextlib.nullcontext() if dry_run else leased(backend.store, topic_id):
                    for line in _one(backend, topics, owner, dry_run=dry_run):
                        say(f"{name}: {line}")
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - one table's trouble is not another's
                say(f"{name}: stays as it is: {first_line(error)}")
                failed.append(error)
    if failed:
        raise failed[0]


def _one(backend: Backend, topics: TypedTopics, owner: Owner, *, dry_run: bool) -> list[str]:
    """One topic id; returns what to say."""
    table = table_context(backend.settings, backend.store, typed=topics.table).table(backend.catalog, owner)
    if table is None:
        return []
    check_layout(table)
    head = LiveFiles().read(table)
    typed = topics.table(owner)
    if typed is None:
        count = len(files_with_errors(backend.store, head))
        why = "the topic's rule has no typed format, or says mode: verbatim"
        return [f"dead letters in {count} files stay as they are: {why}"] if count else []
    run = Replay(store=backend.store, catalog=backend.catalog, topic_id=owner.topic_id, typed=typed)
    try:
        return _lines(run.run(head, dry_run=dry_run), len(head.files), dry_run=dry_run)
    except ColumnsWaitError as error:
        raise ColumnsWaitError(
            f"{owner.topic}: what is a dead letter still stays one for now, run it again: {error}"
        ) from error


def _lines(done: Replayed, files: int, *, dry_run: bool) -> list[str]:
    did = "would be decoded again (dry run)" if dry_run else f"decoded again, in {done.replaced} new files"
    lines = [f"{done.files} of {files} files have dead letters; {done.rows} rows {did}; {done.left.total()} rows stay"]
    lines += [f"  {code}: {count}" for code, count in sorted(done.left.items())]
    if done.beside:
        lines.append(
            f"{done.beside} of them stay as they are, for their partitions have delete files of others, and the rows "
            "these delete would be back. Operations manual: `Engines`"
        )
    if done.gone:
        lines.append(f"{done.gone} files left the table meanwhile; run it again if others have their rows")
    return lines
