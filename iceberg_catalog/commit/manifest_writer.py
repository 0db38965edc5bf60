"""Writing manifests at a fraction of what they cost in PyIceberg.

PyIceberg's writer makes an Avro block of each entry, compresses each alone, and hands its stream one byte of a number
at a time. Here entries are gathered into blocks of BLOCK_BYTES, as Avro's own Java writer does, and encoded in memory.
Schemas, header, statuses and counts are PyIceberg's.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.avro.writer import IntegerWriter, OptionWriter
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from converter.kernels.varint_bytes import zigzag
from iceberg_catalog.commit.manifest_entries import SCHEMA_NAME, EncodedEntry
from iceberg_catalog.limits import MANIFEST_BLOCK_BYTES
from iceberg_catalog.tables.schema import FORMAT_VERSION

_OPTIONAL: Final = OptionWriter(IntegerWriter())  # type: ignore[no-untyped-call] # its base class has no types


#: Counts, lengths and field ids: most numbers of an entry.
_SMALL: Final = tuple(zigzag(number) for number in range(1024))


class BlockEncoder(BinaryEncoder):
    """PyIceberg's encoder, into memory and a number at a time."""

    def __init__(self) -> None:
        self._encoded = bytearray()

    def __len__(self) -> int:
        return len(self._encoded)

    def take(self) -> bytes:
        """What was encoded since the last call."""
        taken = bytes(self._encoded)
        self._encoded.clear()
        return taken

    def write(self, b: bytes) -> None:
        """Takes bytes as they are."""
        self._encoded += b

    def write_int(self, integer: int) -> None:
        """Zigzag and variable length, at most 64 bits (Avro specification, binary encoding)."""
        self._encoded += _SMALL[integer] if 0 <= integer < 1024 else zigzag(integer)

    def write_bytes(self, b: bytes) -> None:
        """The length, then the bytes."""
        self.write_int(len(b))
        self._encoded += b


class _BlockFile(AvroOutputFile[ManifestEntry]):
    """An Avro file whose blocks end where they are full."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._block = BlockEncoder()
        self._entries = 0
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        if exctype is None:
            self._end_block()
        super().__exit__(exctype, excinst, exctb)

    def write_block(self, objects: list[ManifestEntry]) -> None:
        for entry in objects:
            self.writer.write(self._block, entry)
        self._count(len(objects))

    def write_existing(self, entry: EncodedEntry) -> None:
        """What `write_block` writes of the entry with status EXISTING."""
        block = self._block
        block.write_int(ManifestEntryStatus.EXISTING)
        for number in (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number):
            _OPTIONAL.write(block, number)
        block.write(entry.data_file)
        self._count(1)

    def _count(self, entries: int) -> None:
        self._entries += entries
        if len(self._block) >= MANIFEST_BLOCK_BYTES:
            self._end_block()

    def _end_block(self) -> None:
        if not self._entries:
            return
        content, codec = self._block.take(), self.compression_codec()
        if codec is not None:
            content, _ = codec.compress(content)
        self.encoder.write_int(self._entries)
        self.encoder.write_bytes(content)
        self.encoder.write(self.sync_bytes)
        self._entries = 0


def entry_schema(spec: PartitionSpec, schema: Schema) -> Schema:
    """Of the entries that :class:`BlockManifestWriter` writes."""
    data_file = data_file_with_partition(spec.partition_type(schema), format_version=FORMAT_VERSION)
    return manifest_entry_schema_with_data_file(format_version=FORMAT_VERSION, data_file=data_file)


class BlockManifestWriter(ManifestWriterV2):
    """PyIceberg's writer of manifests of format version 2, with larger blocks; takes encoded entries, too."""

    _writer: _BlockFile

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """The file that entries are written to."""
        return _BlockFile(
            output_file=self._output_file,
            file_schema=entry_schema(self._spec, self._schema),
            record_schema=self._with_partition(DEFAULT_READ_VERSION),
            schema_name=SCHEMA_NAME,
            metadata=self._meta,
        )

    def add_existing(self, entry: EncodedEntry) -> None:
        """Adds a live entry of another manifest of the same schema, which an earlier snapshot added."""
        number = entry.sequence_number
        if number is None or entry.file_sequence_number is None or number < 0:
            raise ValueError(f"an existing entry without sequence numbers: {entry.path}")
        self._existing_files += 1
        self._existing_rows += entry.rows
        self._partitions.append(entry.partition)
        if self._min_sequence_number is None or number < self._min_sequence_number:
            self._min_sequence_number = number
        self._writer.write_existing(entry)
