"""The JSON part of the index directory. Bytes are hex, long ones base64; places of sections are relative to its end."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from converter.index_model import (
    BlockTable,
    CauseCount,
    Directory,
    OpenTransaction,
    Section,
    StoredObject,
    Summary,
    UndecidedTransaction,
)
from converter.types import Cause, ConvertOptions, IndexType, LeaderEpoch, SegmentMetadata

Json = Mapping[str, Any]


def directory_to_json(directory: Directory) -> dict[str, Any]:
    """What is stored of a directory whose sections are still relative."""
    metadata = asdict(directory.metadata)
    for name in ("topic_id", "segment_id", "custom_metadata"):
        metadata[name] = metadata[name].hex()
    metadata["leader_epochs"] = _epochs_to_json(directory.metadata.leader_epochs)
    return {
        "metadata": metadata,
        "options": asdict(directory.options),
        "attempt_id": directory.attempt_id.hex(),
        "data": None if directory.data is None else asdict(directory.data),
        "kept": None if directory.kept is None else asdict(directory.kept),
        "files": {kind.name: asdict(section) for kind, section in directory.files.items()},
        "footer": None if directory.footer is None else asdict(directory.footer),
        "footer_raw_size": directory.footer_raw_size,
        "tail": None if directory.tail is None else asdict(directory.tail),
        "tail_footer": None if directory.tail_footer is None else asdict(directory.tail_footer),
        "tail_footer_raw_size": directory.tail_footer_raw_size,
        "summary": _summary_to_json(directory.summary),
        "proven": base64.b64encode(directory.proven).decode("ascii"),
    }


def directory_from_json(
    text: Json, *, blocks: BlockTable, directory_size: int, total_size: int, checksum: int
) -> Directory:
    """The inverse; sections become absolute. Raises ValueError, KeyError, TypeError or AttributeError."""

    def section(entry: Json) -> Section:
        return Section(directory_size + int(entry["offset"]), int(entry["size"]), int(entry["crc32c"]))

    metadata = dict(text["metadata"])
    for name in ("topic_id", "segment_id", "custom_metadata"):
        metadata[name] = bytes.fromhex(metadata[name])
    metadata["leader_epochs"] = _epochs_from_json(metadata["leader_epochs"])
    return Directory(
        metadata=SegmentMetadata(**metadata),
        options=ConvertOptions(**text["options"]),
        attempt_id=bytes.fromhex(text["attempt_id"]),
        data=None if text["data"] is None else StoredObject(**text["data"]),
        kept=None if text["kept"] is None else StoredObject(**text["kept"]),
        summary=_summary_from_json(text["summary"]),
        files={IndexType[name]: section(entry) for name, entry in text["files"].items()},
        footer=None if text["footer"] is None else section(text["footer"]),
        footer_raw_size=int(text["footer_raw_size"]),
        blocks=blocks,
        directory_size=directory_size,
        total_size=total_size,
        tail=None if text["tail"] is None else StoredObject(**text["tail"]),
        tail_footer=None if text["tail_footer"] is None else section(text["tail_footer"]),
        tail_footer_raw_size=int(text["tail_footer_raw_size"]),
        proven=base64.b64decode(text["proven"], validate=True),
        checksum=checksum,
    )


def _summary_to_json(summary: Summary) -> dict[str, Any]:
    return {
        "batches": summary.batches,
        "rows": summary.rows,
        "served_bytes": summary.served_bytes,
        "markers": summary.markers,
        "leader_epochs": _epochs_to_json(summary.leader_epochs),
        "undecided": [[t.producer_id, t.first_offset, t.last_offset] for t in summary.undecided],
        "undecided_overflow": summary.undecided_overflow,
        "open_transactions": _open_to_json(summary.open_transactions),
        "transaction_conflict": summary.transaction_conflict,
        "quarantined": _counts_to_json(summary.quarantined),
        "kept": _counts_to_json(summary.kept),
        "verbatim": summary.verbatim,
        "pending": summary.pending,
    }


def _summary_from_json(text: Json) -> Summary:
    return Summary(
        batches=int(text["batches"]),
        rows=int(text["rows"]),
        served_bytes=int(text["served_bytes"]),
        markers=int(text["markers"]),
        leader_epochs=_epochs_from_json(text["leader_epochs"]),
        undecided=tuple(UndecidedTransaction(*entry) for entry in text["undecided"]),
        undecided_overflow=bool(text["undecided_overflow"]),
        open_transactions=_open_from_json(text["open_transactions"]),
        transaction_conflict=bool(text["transaction_conflict"]),
        quarantined=_counts_from_json(text["quarantined"]),
        kept=_counts_from_json(text["kept"]),
        verbatim=bool(text["verbatim"]),
        pending=None if text["pending"] is None else str(text["pending"]),
    )


def _open_to_json(opened: tuple[OpenTransaction, ...] | None) -> list[list[int | None]] | None:
    return None if opened is None else [[t.producer_id, t.first_offset, t.committed] for t in opened]


def _open_from_json(entries: list[list[Any]] | None) -> tuple[OpenTransaction, ...] | None:
    return None if entries is None else tuple(OpenTransaction(*entry) for entry in entries)


def _epochs_to_json(epochs: tuple[LeaderEpoch, ...]) -> list[list[int]]:
    return [[e.epoch, e.start_offset] for e in epochs]


def _epochs_from_json(entries: list[list[int]]) -> tuple[LeaderEpoch, ...]:
    return tuple(LeaderEpoch(*entry) for entry in entries)


def _counts_to_json(counts: tuple[CauseCount, ...]) -> list[list[int]]:
    return [[int(c.cause), c.batches, c.records, c.bytes] for c in counts]


def _counts_from_json(entries: list[list[int]]) -> tuple[CauseCount, ...]:
    return tuple(CauseCount(Cause(cause), *rest) for cause, *rest in entries)
