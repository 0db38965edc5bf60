"""Entries of a manifest that move to another one without their data files being decoded and encoded again.

Only between files of one Avro schema, which for our own manifests of a table is the rule. What the new manifest needs
to know of a data file (path, partition, rows) stands at its beginning; the rest, statistics above all, moves as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

SCHEMA_NAME: Final = "manifest_entry"
_HEADER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
#: Position of `data_file` in an entry; of path, partition and rows in it (Iceberg spec, manifests of version 2).
_DATA_FILE, _PATH, _PARTITION, _ROWS = 4, 1, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedEntry:
    """An entry with what it inherits from its manifest; `data_file` as Avro has it."""

    status: ManifestEntryStatus
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    path: str
    partition: Record
    rows: int
    data_file: bytes


class EntryReader:
    """Reads entries of one schema (Iceberg spec, manifests); making it takes longer than reading a small manifest."""

    def __init__(self, schema: Schema) -> None:
        self._avro_schema = avro_schema(schema)
        self._fields = _readers(_readers(construct_reader(schema))[_DATA_FILE])

    def live(self, data: bytes, manifest: ManifestFile) -> list[EncodedEntry] | None:
        """Entries of a manifest that are not deleted; None when they are not written in this schema.

        Args:
            data: the file.
            manifest: as its manifest list names it.

        Raises:
            ValueError: the file is damaged.
        """
        decoder = new_decoder(data)
        header: AvroFileHeader = _HEADER.read(decoder)
        if header.meta["avro.schema"] != self._avro_schema:
            return None
        entries: list[EncodedEntry] = []
        for count, block in _blocks(decoder, header):
            content = new_decoder(block)
            found = (_entry(content, block, self._fields, manifest) for _ in range(count))
            entries.extend(entry for entry in found if entry.status is not ManifestEntryStatus.DELETED)
        return entries


def avro_meta(data: bytes) -> dict[str, str]:
    """What an Avro file's header says. Raises ValueError, or what else is in DAMAGE, for what is none."""
    header: AvroFileHeader = _HEADER.read(new_decoder(data))
    return header.meta


def avro_schema(schema: Schema) -> str:
    """As the header of an Avro file names it that PyIceberg writes."""
    return json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=SCHEMA_NAME))


def _readers(reader: Reader) -> list[Reader]:
    return [field for _, field in reader.field_readers] if isinstance(reader, StructReader) else []


def _blocks(decoder: BinaryDecoder, header: AvroFileHeader) -> Iterator[tuple[int, bytes]]:
    """Number of entries and content of each block."""
    codec = header.compression_codec()
    while True:
        try:
            count = decoder.read_int()
        except EOFError:
            return
        block = decoder.read_bytes()
        yield count, block if codec is None else codec.decompress(block)
        if decoder.read(len(header.sync)) != header.sync:
            raise ValueError("a block of a manifest does not end where it should")


def _entry(decoder: BinaryDecoder, block: bytes, fields: list[Reader], manifest: ManifestFile) -> EncodedEntry:
    status = ManifestEntryStatus(decoder.read_int())
    snapshot_id, sequence_number, file_sequence_number = (_optional(decoder) for _ in range(3))
    start = decoder.tell()
    values = [field.read(decoder) for field in fields]
    inherited: int | None = manifest.sequence_number if status is ManifestEntryStatus.ADDED else None
    return EncodedEntry(
        status=status,
        snapshot_id=manifest.added_snapshot_id if snapshot_id is None else snapshot_id,
        sequence_number=inherited if sequence_number is None else sequence_number,
        file_sequence_number=inherited if file_sequence_number is None else file_sequence_number,
        path=values[_PATH],
        partition=values[_PARTITION],
        rows=values[_ROWS],
        data_file=block[start : decoder.tell()],
    )


def _optional(decoder: BinaryDecoder) -> int | None:
    present = decoder.read_int()
    return decoder.read_int() if present else None
