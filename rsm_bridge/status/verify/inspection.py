"""`tierberg inspect`: what a segment index says, as text."""

from __future__ import annotations

from pathlib import Path

from converter.index.codec import MAGIC, block_section, decode_block, decode_directory
from converter.index.model import Directory
from converter.index.position import last_offsets
from converter.types import BatchFlag, Cause
from converter.values.proof.proven import unpack_proven
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import INDEX_BYTES_MAX
from rsm_bridge.local_files import read_local
from rsm_bridge.storage.keys import INDEX_ROOT
from rsm_bridge.storage.opening import open_made_store
from rsm_bridge.storage.segments.index_at import index_named
from rsm_bridge.storage.tombstone import MAGIC as TOMBSTONE
from rsm_bridge.storage.tombstone import Tombstone, decode_tombstone, is_tombstone

_ENDS = {
    None: "its marker is in a later segment",
    True: "committed, by transaction indexes of later segments",
    False: "aborted, by transaction indexes of later segments",
}


def describe(target: str, config: Path | None, data_dir: Path | None, batches: int | None) -> str:
    """The text for one index: `target` is a file, or a key of the configured store.

    Args:
        target: a file's path or an index key.
        config: the bridge's settings; None for the defaults.
        data_dir: overrides the settings' own.
        batches: how many batches to list; None shows sections and blocks instead.

    Raises:
        BridgeError: no such object, or a damaged tombstone.
        SegmentError: the index is damaged or of a newer release.
        SettingsError: the configuration cannot be used.
    """
    data = _read(target, config, data_dir)
    lines: list[str] = []
    if is_tombstone(data):
        stone = decode_tombstone(data)
        lines.extend(_tombstone_lines(stone))
        if not stone.index:
            return "\n".join(lines)
        data = stone.index
    with index_named(target):
        directory = decode_directory(data)
        lines.extend(_directory_lines(directory))
        lines.extend(_layout_lines(directory) if batches is None else _batch_lines(directory, data, batches))
    return "\n".join(lines)


def _read(target: str, config: Path | None, data_dir: Path | None) -> bytes:
    if not target.startswith(INDEX_ROOT):
        try:
            return read_local(Path(target), INDEX_BYTES_MAX, (MAGIC, TOMBSTONE))
        except OSError as error:
            raise BridgeError("not_found", f"{target}: {error.strerror}; a key begins with {INDEX_ROOT}") from error
        except ValueError as error:
            raise BridgeError("corrupt_object", f"{target}: no segment index: {error}") from error
    return open_made_store(load_settings(config, {"data_dir": data_dir})).read(target).data


def _tombstone_lines(stone: Tombstone) -> list[str]:
    return [f"tombstone    {stone.kind} at {stone.time_ms} ms, topic {stone.topic}, cluster {stone.cluster_name}"]


def _directory_lines(directory: Directory) -> list[str]:
    metadata, summary = directory.metadata, directory.summary
    owner = f"id {metadata.topic_id.hex()}  cluster {metadata.cluster_name}"
    lines = [
        f"segment      {metadata.segment_id.hex()}  attempt {directory.attempt_id.hex()}",
        f"topic        {metadata.topic}-{metadata.partition}  {owner}",
        f"offsets      {metadata.start_offset} to {metadata.end_offset} (inclusive)",
        f"source       {metadata.segment_size_bytes} bytes, served {summary.served_bytes} bytes",
        f"stored as    {directory.options.mode}, values {directory.options.value_format}",
        f"batches      {summary.batches}, rows {summary.rows}, markers {summary.markers}",
        f"epochs       {' '.join(f'{run.epoch}.{run.start_offset}' for run in summary.leader_epochs)}",
    ]
    for name, stored in (("data file", directory.data), ("tail", directory.tail), ("kept bytes", directory.kept)):
        text = "none" if stored is None else f"{stored.key}  {stored.size} bytes, CRC32C {stored.crc32c:08x}"
        lines.append(f"{name:<12} {text}")
    for name, counts in (("kept", summary.kept), ("quarantined", summary.quarantined)):
        lines.extend(
            f"{name:<12} {count.cause.name.lower()}: "
            f"{count.batches} batches, {count.records} records, {count.bytes} bytes"
            for count in counts
        )
    lines.extend(
        f"undecided    producer {transaction.producer_id}, "
        f"offsets {transaction.first_offset} to {transaction.last_offset}"
        for transaction in summary.undecided
    )
    lines.extend(
        f"open at end  producer {opened.producer_id} from offset {opened.first_offset}: {_ENDS[opened.committed]}"
        for opened in summary.open_transactions or ()
    )
    if summary.open_transactions is None:
        lines.append("open at end  unknown: the broker's producer snapshot or transaction index was absent or damaged")
    lines.extend(
        f"left out     {kind.name.lower()}: {size} bytes, too many to be stored"
        for kind, size in directory.left_out.items()
    )
    if directory.proven:
        lines.extend(
            f"values       encoder {number}: {item.encoding.kind} {item.encoding.version}, header "
            f"{item.header.hex() or 'none'}, {item.columns.num_fields} columns"
            for number, item in enumerate(unpack_proven(directory.proven).encodings, start=1)
        )
    if summary.pending is not None:
        lines.append(f"pending      stored without its typed columns, a derived file has them: {summary.pending}")
    if summary.transaction_conflict:
        lines.append("conflict     markers contradict the broker's transaction files; the table waits before it")
    return lines


def _layout_lines(directory: Directory) -> list[str]:
    lines = [f"index        {directory.total_size} bytes, directory {directory.directory_size} bytes"]
    lines.extend(
        f"section      {kind.name:<18} offset {section.offset:>10}  {section.size} bytes  CRC32C {section.crc32c:08x}"
        for kind, section in sorted(directory.files.items())
    )
    for number, block in enumerate(directory.blocks):
        section = block_section(directory, number)
        lines.append(
            f"block {number:<6} batches {block['batches']}, offsets {block['first_offset']} to {block['last_offset']}, "
            f"position {block['position']}, rows {block['rows']}, pages {block['pages']}, {section.size} bytes"
        )
    return lines


def _batch_lines(directory: Directory, data: bytes, wanted: int) -> list[str]:
    lines = ["   batch        base        last  epoch  records   served     position  producer  flags"]
    for number in range(len(directory.blocks)):
        section = block_section(directory, number)
        block = decode_block(directory, number, data[section.offset : section.offset + section.size])
        lasts = last_offsets(block.batches)
        for place, batch in enumerate(block.batches):
            if wanted == 0:
                return lines
            wanted -= 1
            flags = BatchFlag(int(batch["flags"]))
            cause = Cause(int(batch["cause"]))
            said = "|".join(flag.name or "" for flag in BatchFlag if flag in flags)
            reason = "" if cause is Cause.NONE else f" ({cause.name.lower()})"
            lines.append(
                f"{block.first_batch + place:>8} {batch['base_offset']:>11} {lasts[place]:>11} "
                f"{batch['leader_epoch']:>6} "
                f"{batch['count']:>8} {batch['served_size']:>8} {batch['position']:>12} {batch['producer_id']:>9}  "
                f"{said}{reason}"
            )
    return lines
