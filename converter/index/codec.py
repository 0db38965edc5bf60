"""The segment index object: encode, and decode by range. docs/format.md has the bytes, field by field.

    header · directory (JSON, block array) · Kafka's indexes, OFFSET, footer · blocks

The header's layout and the rule for its checksum are the same in every version, so that a flipped bit is told from a
newer release. Each section and each block has a CRC32C in the directory, and the directory one in the header: decoding
either returns what was encoded or raises :class:`SegmentError`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import zstandard
from crc32c import crc32c

from converter import stored_json
from converter.errors import SegmentError
from converter.index.columns import inflate, unpack_batches, unpack_integers, unpack_pages
from converter.index.directory_json import directory_from_json, directory_to_json
from converter.index.model import BLOCK_DTYPE, Block, Directory, IndexSection
from converter.limits import DIRECTORY_BYTES_MAX, FOOTER_BYTES_MAX
from converter.types import IndexType

Buffer = bytes | bytearray | memoryview

MAGIC: Final = b"TBIX"
VERSION: Final = 1
#: Magic, version, flags (0), directory size (header included), JSON size, block count, total size, CRC32C of all bytes
#: of the directory but itself.
_HEADER: Final = struct.Struct("<4sHHIIIQI")
HEADER_SIZE: Final = _HEADER.size
_CRC: Final = struct.Struct("<I")


def encode_index(
    directory: Directory,
    files: Mapping[IndexType, bytes],
    footer: bytes | None,
    blocks: list[bytes],
    *,
    tail_footer: bytes | None = None,
) -> tuple[bytes, Directory]:
    """Lay out an index object.

    Args:
        directory: with `blocks` filled but for their `offset`; `files`, the footers, `directory_size` and `total_size`
            are filled in here.
        files: bytes of Kafka's indexes, and our own sparse one under OFFSET.
        footer: the data file's footer, or None without a data file.
        blocks: stored bytes of each block, its four parts joined. The list is emptied, so that memory holds the
            index once.
        tail_footer: the tail's footer, or None without a tail.

    Returns:
        The object and its directory as :func:`decode_directory` will return it.

    Raises:
        ValueError: the directory exceeds DIRECTORY_BYTES_MAX.
    """
    footers = [zstandard.ZstdCompressor(level=3).compress(raw) for raw in (footer, tail_footer) if raw is not None]
    parts = [*(files[kind] for kind in sorted(files)), *footers]
    # The places of sections depend on the size of the JSON, which names them: all numbers in it that depend on its
    # size are relative to the end of the directory.
    sections: list[IndexSection] = []
    at = 0
    for part in parts:
        sections.append(IndexSection(at, len(part), crc32c(part)))
        at += len(part)
    table = directory.blocks.copy()
    lengths = np.array([len(block) for block in blocks], dtype=np.int64)
    table["offset"] = np.cumsum(lengths) - lengths + at
    relative = replace(
        directory,
        files=dict(zip(sorted(files), sections, strict=False)),
        footer=None if footer is None else sections[len(files)],
        footer_raw_size=0 if footer is None else len(footer),
        tail_footer=None if tail_footer is None else sections[-1],
        tail_footer_raw_size=0 if tail_footer is None else len(tail_footer),
    )
    text = json.dumps(directory_to_json(relative), separators=(",", ":"), sort_keys=True).encode()
    directory_size = HEADER_SIZE + len(text) + table.nbytes
    if directory_size > DIRECTORY_BYTES_MAX:
        raise ValueError(f"directory of {directory_size} bytes")
    total_size = directory_size + at + int(lengths.sum())
    out = bytearray(_HEADER.pack(MAGIC, VERSION, 0, directory_size, len(text), len(table), total_size, 0))
    out += text
    out += table.tobytes()
    _CRC.pack_into(out, HEADER_SIZE - _CRC.size, _directory_crc(memoryview(out)))
    head = bytes(out)
    for part in parts:
        out += part
    blocks.reverse()
    while blocks:
        out += blocks.pop()
    return bytes(out), decode_directory(head)


def decode_directory(head: Buffer) -> Directory:
    """Read the directory.

    Args:
        head: the first bytes of the object, at least `directory_size` (custom metadata has it).

    Raises:
        SegmentError: `corrupt_object` for any damage, `unsupported_version` for an index of a newer release.
    """
    view = memoryview(head).cast("B")
    if len(view) < HEADER_SIZE:
        raise SegmentError("corrupt_object", "segment index is cut in its header", position=len(view))
    magic, version, _flags, size, json_size, count, total_size, crc = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise SegmentError("corrupt_object", "no segment index: wrong magic", position=0)
    if not HEADER_SIZE <= size <= min(len(view), DIRECTORY_BYTES_MAX):
        raise SegmentError("corrupt_object", "segment index is cut in its directory", position=len(view))
    if _directory_crc(view[:size]) != crc:
        raise SegmentError("corrupt_object", "checksum of the index directory differs", position=0)
    if version != VERSION:
        raise SegmentError("unsupported_version", f"segment index has version {version}, this release reads {VERSION}")
    if size != HEADER_SIZE + json_size + count * BLOCK_DTYPE.itemsize:
        raise SegmentError("corrupt_object", "sizes in the index header contradict each other", position=0)
    blocks = np.frombuffer(view[HEADER_SIZE + json_size : size], dtype=BLOCK_DTYPE).copy()
    blocks["offset"] += size
    blocks.flags.writeable = False
    try:
        parsed = stored_json.parse(view[HEADER_SIZE : HEADER_SIZE + json_size])
        return directory_from_json(parsed, blocks=blocks, directory_size=size, total_size=total_size, checksum=crc)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SegmentError(
            "corrupt_object",
            f"index directory is malformed: {type(error).__name__}: {str(error)[:300]}",
            position=HEADER_SIZE,
        ) from error


def header_directory_size(head: Buffer) -> int:
    """Bytes of the header and the directory, as an index object's first HEADER_SIZE bytes say; 0 when they are cut."""
    return int(_HEADER.unpack_from(head)[3]) if len(head) >= HEADER_SIZE else 0


def header_checksum(head: Buffer) -> int | None:
    """The checksum in an index object's first HEADER_SIZE bytes (`Directory.checksum`); None when they are cut."""
    return _CRC.unpack_from(head, HEADER_SIZE - _CRC.size)[0] if len(head) >= HEADER_SIZE else None


def section_bytes(section: IndexSection, data: Buffer) -> bytes:
    """Check what was read for a section against its size and checksum, and return it.

    Raises:
        SegmentError: `corrupt_object`.
    """
    if len(data) != section.size or crc32c(data) != section.crc32c:
        raise SegmentError("corrupt_object", "checksum of an index section differs", position=section.offset)
    return bytes(data)


class SectionCheck:
    """The checksum of a section that is read in pieces, in order, so that it never lies in memory whole."""

    def __init__(self, section: IndexSection) -> None:
        self._section = section
        self._size = self._crc = 0

    def add(self, piece: Buffer) -> None:
        """Takes in the next piece.

        Raises:
            SegmentError: `corrupt_object`: with this piece the section has all its bytes, and they are other ones.
        """
        self._size += len(piece)
        self._crc = crc32c(piece, self._crc)
        if self._size >= self._section.size and (self._size, self._crc) != (self._section.size, self._section.crc32c):
            raise SegmentError("corrupt_object", "checksum of an index section differs", position=self._section.offset)


def kafka_files(directory: Directory, index: Buffer) -> dict[IndexType, bytes]:
    """Kafka's indexes of the segment, and our own sparse one under OFFSET, out of the whole index object.

    Raises:
        SegmentError: `corrupt_object`.
    """
    view = memoryview(index).cast("B")
    return {kind: section_bytes(part, view[part.offset :][: part.size]) for kind, part in directory.files.items()}


def footer_bytes(directory: Directory, data: Buffer, *, tail: bool = False) -> bytes:
    """The Parquet footer (FileMetaData, Thrift) of the data file, or of its tail, from the bytes of its section.

    Raises:
        SegmentError: `corrupt_object`, also for a segment without such a file.
    """
    section = directory.tail_footer if tail else directory.footer
    raw_size = directory.tail_footer_raw_size if tail else directory.footer_raw_size
    if section is None or raw_size > FOOTER_BYTES_MAX:
        raise SegmentError("corrupt_object", "segment index has no footer")
    return inflate(section_bytes(section, data), raw_size)


def block_section(directory: Directory, number: int) -> IndexSection:
    """The byte range of a block in the index object."""
    entry = directory.blocks[number]
    size = sum(int(entry[f"{part}_length"]) for part in ("batches", "deltas", "encoders", "pages"))
    return IndexSection(int(entry["offset"]), size, int(entry["crc32c"]))


def decode_block(directory: Directory, number: int, data: Buffer) -> Block:
    """Decode block `number` from the bytes of :func:`block_section`.

    Raises:
        SegmentError: `corrupt_object`.
    """
    section_bytes(block_section(directory, number), data)
    entry = directory.blocks[number]
    view = memoryview(data).cast("B")
    batches_end = int(entry["batches_length"])
    deltas_end = batches_end + int(entry["deltas_length"])
    encoders_end = deltas_end + int(entry["encoders_length"])
    return Block(
        number=number,
        first_batch=int(entry["first_batch"]),
        batches=unpack_batches(view[:batches_end], int(entry["batches_raw"]), int(entry["batches"])),
        deltas=unpack_integers(view[batches_end:deltas_end], int(entry["deltas_raw"]), int(entry["deltas"])),
        encoders=unpack_integers(view[deltas_end:encoders_end], int(entry["encoders_raw"]), int(entry["encoders"])),
        pages=unpack_pages(view[encoders_end:], int(entry["pages_raw"]), int(entry["pages"])),
        deltas_start=int(entry["deltas_start"]),
    )


def _directory_crc(directory: memoryview) -> int:
    before = crc32c(directory[: HEADER_SIZE - _CRC.size])
    return crc32c(directory[HEADER_SIZE:], before)


def decode_index(index: Buffer) -> tuple[Directory, list[Block]]:
    """A whole index object: its directory and all of its blocks.

    Raises:
        SegmentError: `corrupt_object`, `unsupported_version`.
    """
    directory = decode_directory(index)
    view = memoryview(index).cast("B")
    sections = [block_section(directory, number) for number in range(len(directory.blocks))]
    return directory, [
        decode_block(directory, number, view[section.offset : section.offset + section.size])
        for number, section in enumerate(sections)
    ]
