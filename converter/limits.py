"""Every limit of this room, in one place. Sizes are bytes unless the name says otherwise."""

from __future__ import annotations

from typing import Final

# --- what is written -------------------------------------------------------------------------------------------------

#: A row group is closed when its rows hold this many bytes of Arrow data; no more than one is ever buffered.
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
#: Rows after which a row group is closed whatever their size.
ROW_GROUP_ROWS: Final = 1024 * 1024
#: Aimed-at uncompressed size of a page: what a random read decompresses too much.
PAGE_BYTES: Final = 256 * 1024
#: zstd level of data pages and of index blocks.
ZSTD_LEVEL_DATA: Final = 1
ZSTD_LEVEL_INDEX: Final = 3

# --- positions -------------------------------------------------------------------------------------------------------

#: Kafka adds the fetch size to a position as a 32-bit int.
POSITION_MAX: Final = 2**30
#: OFFSET index entries are at least this far apart: one per batch would be 97 MB for a GiB of one-record batches.
OFFSET_INDEX_INTERVAL_BYTES: Final = 16 * 1024

# --- the segment index -----------------------------------------------------------------------------------------------

BLOCK_BATCHES_MAX: Final = 4096
#: A block is closed early when its batches have this many timestamp deltas (one batch may have more).
BLOCK_DELTAS: Final = 256 * 1024
#: Most a part of a block may decompress to; a batch of 36 million records has that many deltas.
BLOCK_PART_BYTES_MAX: Final = 512 * 1024 * 1024
#: Most the directory may take, JSON and block array together.
DIRECTORY_BYTES_MAX: Final = 64 * 1024 * 1024
FOOTER_BYTES_MAX: Final = 256 * 1024 * 1024
#: Undecided transactions listed in the directory; with more a flag is set and the blocks must be read.
SUMMARY_TRANSACTIONS_MAX: Final = 1000
KEY_CHARS_MAX: Final = 4096

# --- what is read ----------------------------------------------------------------------------------------------------

THRIFT_DEPTH_MAX: Final = 16
#: Most a page may decompress to: one value of nearly 2 GiB is legal Parquet, but no batch that large is ever rebuilt.
PAGE_BYTES_MAX: Final = 768 * 1024 * 1024
