"""The JSON part of the index directory. Bytes are hex, long ones base64; places of sections are relative to its end."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from converter.index.model import (
    BlockTable,
    CauseCount,
    Directory,
    IndexSection,
    OpenTransaction,
    StoredObject,
    Summary,
    UndecidedTransaction,
)
from converter.stored_json import field, fields, listed, truth, whole
from converter.stored_json import text as text_of
from converter.types import Cause, ConvertOptions, IndexType, LeaderEpoch, SegmentMetadata

Json = Mapping[str, Any]

_INT32_MAX = 2**31 - 1
_UINT32_MAX = 2**32 - 1


def directory_to_json(directory: Directory) -> dict[str, Any]:
    """What is stored of a directory whose sections are still relative."""
    metadata = asdict(directory.metadata)
    for name in ("topic_id", "segment_id", "custom_metadata"):
        metadata[name] = metadata[name].hex()
    metadata["leader_epochs"] = _epochs_to_json(directory.metadata.leader_epochs)
    later = {} if directory.first_written_ms is None else {"first_written_ms": directory.first_written_ms}
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
        "left_out": {kind.name: size for kind, size in directory.left_out.items()},
        **later,
    }


def directory_from_json(
    text: Json, *, blocks: BlockTable, directory_size: int, total_size: int, checksum: int
) -> Directory:
    """The inverse; sections become absolute. Raises ValueError or KeyError for whatever is not as it was written."""

    def section(entry: object) -> IndexSection:
        offset, size = whole(field(entry, "offset"), 0, total_size), whole(field(entry, "size"), 0, total_size)
        if size > total_size - directory_size - offset:
            raise ValueError("a section ends beyond the index")
        return IndexSection(directory_size + offset, size, whole(field(entry, "crc32c"), 0, _UINT32_MAX))

    def optional(entry: object) -> IndexSection | None:
        return None if entry is None else section(entry)

    document = fields(text)
    return Directory(
        metadata=_metadata_from_json(fields(document["metadata"])),
        options=_options_from_json(fields(document["options"])),
        attempt_id=_id_of(document["attempt_id"]),
        data=_object_from_json(document["data"]),
        kept=_object_from_json(document["kept"]),
        summary=_summary_from_json(fields(document["summary"])),
        files={IndexType[name]: section(entry) for name, entry in fields(document["files"]).items()},
        footer=optional(document["footer"]),
        footer_raw_size=whole(document["footer_raw_size"], 0),
        blocks=blocks,
        directory_size=directory_size,
        total_size=total_size,
        tail=_object_from_json(document["tail"]),
        tail_footer=optional(document["tail_footer"]),
        tail_footer_raw_size=whole(document["tail_footer_raw_size"], 0),
        proven=base64.b64decode(text_of(document["proven"]), validate=True),
        checksum=checksum,
        left_out={IndexType[name]: whole(size, 0) for name, size in fields(document["left_out"]).items()},
        first_written_ms=whole(document["first_written_ms"], 0) if "first_written_ms" in document else None,
    )


def _metadata_from_json(text: Json) -> SegmentMetadata:
    start = whole(text["start_offset"], 0)
    return SegmentMetadata(
        cluster_name=text_of(text["cluster_name"]),
        topic=text_of(text["topic"]),
        topic_id=_id_of(text["topic_id"]),
        partition=whole(text["partition"], 0, _INT32_MAX),
        segment_id=_id_of(text["segment_id"]),
        start_offset=start,
        end_offset=whole(text["end_offset"], start),
        max_timestamp_ms=whole(text["max_timestamp_ms"]),
        broker_id=whole(text["broker_id"]),
        event_timestamp_ms=whole(text["event_timestamp_ms"]),
        segment_size_bytes=whole(text["segment_size_bytes"], 0),
        leader_epochs=_epochs_from_json(text["leader_epochs"]),
        custom_metadata=bytes.fromhex(text_of(text["custom_metadata"])),
    )


def _options_from_json(text: Json) -> ConvertOptions:
    value_format, mode = text["value_format"], text["mode"]
    if value_format not in ("raw", "string") or mode not in ("table", "verbatim"):
        raise ValueError("unknown options")
    return ConvertOptions(value_format, mode, whole(text["decompressed_batch_bytes_max"], 0))


def _object_from_json(entry: object) -> StoredObject | None:
    if entry is None:
        return None
    size, checksum = whole(field(entry, "size"), 0), whole(field(entry, "crc32c"), 0, _UINT32_MAX)
    return StoredObject(text_of(field(entry, "key")), size, checksum)


def _id_of(value: object) -> bytes:
    found = bytes.fromhex(text_of(value))
    if len(found) != 16:
        raise ValueError("an id is not 16 bytes")
    return found


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
        batches=whole(text["batches"], 0),
        rows=whole(text["rows"], 0),
        served_bytes=whole(text["served_bytes"], 0),
        markers=whole(text["markers"], 0),
        leader_epochs=_epochs_from_json(text["leader_epochs"]),
        undecided=tuple(UndecidedTransaction(*map(whole, listed(entry, 3))) for entry in listed(text["undecided"])),
        undecided_overflow=truth(text["undecided_overflow"]),
        open_transactions=_open_from_json(text["open_transactions"]),
        transaction_conflict=truth(text["transaction_conflict"]),
        quarantined=_counts_from_json(text["quarantined"]),
        kept=_counts_from_json(text["kept"]),
        verbatim=truth(text["verbatim"]),
        pending=None if text["pending"] is None else text_of(text["pending"]),
    )


def _open_to_json(opened: tuple[OpenTransaction, ...] | None) -> list[list[int | None]] | None:
    return None if opened is None else [[t.producer_id, t.first_offset, t.committed] for t in opened]


def _open_from_json(entries: object) -> tuple[OpenTransaction, ...] | None:
    if entries is None:
        return None
    return tuple(
        OpenTransaction(whole(producer), whole(first), None if committed is None else truth(committed))
        for producer, first, committed in (listed(entry, 3) for entry in listed(entries))
    )


def _epochs_to_json(epochs: tuple[LeaderEpoch, ...]) -> list[list[int]]:
    return [[e.epoch, e.start_offset] for e in epochs]


def _epochs_from_json(entries: object) -> tuple[LeaderEpoch, ...]:
    pairs = (listed(entry, 2) for entry in listed(entries))
    return tuple(LeaderEpoch(whole(epoch), whole(start)) for epoch, start in pairs)


def _counts_to_json(counts: tuple[CauseCount, ...]) -> list[list[int]]:
    return [[int(c.cause), c.batches, c.records, c.bytes] for c in counts]


def _counts_from_json(entries: object) -> tuple[CauseCount, ...]:
    rows = ([whole(item, 0) for item in listed(entry, 4)] for entry in listed(entries))
    return tuple(CauseCount(Cause(cause), *rest) for cause, *rest in rows)
