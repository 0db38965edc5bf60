"""Every limit of this room. Sizes are bytes."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

#: Input is worked on in steps of about this size; 1 MiB steps double the CPU.
STEP_BYTES: Final = 4 * MIB

#: A step ends with the batch that takes its records, uncompressed, to this size, however small they came.
STEP_RECORDS_BYTES: Final = 8 * MIB

#: Most batches of one step; one-record batches of 70 bytes reach it first.
STEP_BATCHES_MAX: Final = 65_536

#: Scratch buffers larger than this are dropped after the step that needed them.
SCRATCH_BYTES_MAX: Final = 16 * MIB

#: A decompressor's context that a frame made larger is dropped, too: a producer decides how wide its window is.
ZSTD_CONTEXT_BYTES_MAX: Final = 16 * MIB

#: A batch is served uncompressed up to this size, or up to its original size where that is larger.
SERVED_BATCH_BYTES_MAX: Final = MIB

#: Upper bound of the setting `decompressed_batch_bytes_max`: Arrow's 32-bit offsets must hold a batch.
DECOMPRESSED_BATCH_BYTES_CEILING: Final = 1024 * MIB

#: What a record, or a header, costs beside its bytes: ten times the seven bytes of the smallest record, thirty times
#: the two of the smallest header. A compressed batch may have one record per this many bytes of the decompression limit
#: (4 million at 256 MiB); beyond, it counts as exceeding the limit.
RECORD_BYTES: Final = 64

#: Rows of one step, in bytes: each batch's keys, values and headers, and RECORD_BYTES for each record and header. A
#: step of more ends with the batch before; a single batch of more is *large*. One whose rows take more than this and
#: more than the decompression limit counts as exceeding the limit, however it is compressed.
STEP_ROWS_BYTES: Final = 32 * MIB

# Values in columns. A cell is what one value of one column takes: 9 to 17 bytes, null or not.

#: Cells of one value: elements of lists and entries of maps times the columns they have, null ones too. A value of
#: more has no columns; its row says so.
VALUE_CELLS_MAX: Final = 4 * MIB

#: Cells that each byte of a value pays for, and each of the RECORD_BYTES that a value counts beside: a list of numbers
#: takes one a byte, objects of which most members are missing ten, what is decoded slowly seventeen.
CELLS_PER_BYTE: Final = 32

#: Cells that lists and maps of the values of one file (a copied segment, a derived or rewritten file) may take beyond
#: those, and in all: ten to thirty seconds of a processor, and some minutes. A value that would take more has no
#: columns; its row says so.
EXCESS_CELLS_MAX: Final = 64 * VALUE_CELLS_MAX
FILE_CELLS_MAX: Final = 8 * 1024 * MIB

#: Steps that Python may take for the values of one file, three to five microseconds each: five minutes, so that four
#: copies at once take twenty. One step is one JSON value within a value that only the slow decoder reads, 64 cells of
#: it, or 96 cells of what google.protobuf reads. A segment of 1 GiB whose rows are all slow, of 16 columns and 500
#: bytes, takes two thirds of them.
SLOW_STEPS_MAX: Final = 64 * MIB

#: Cells of rows that are decoded together, those of columns of the whole row included. A single row of more is *large*.
PIECE_CELLS_MAX: Final = MIB

#: Most bytes one call of rebuild() may be asked for.
REBUILD_BYTES_MAX: Final = 2048 * MIB

#: Ranges shorter than this are checksummed in a kernel, longer ones by the library.
CHECKSUM_KERNEL_BYTES_MAX: Final = 512

#: Largest transaction index and producer snapshot that are read; larger ones count as unreadable.
TRANSACTION_FILE_BYTES_MAX: Final = 256 * MIB

# What is written: data file, kept bytes, index.

#: A row group is closed when its rows hold this many bytes of Arrow data; no more than one is ever buffered.
ROW_GROUP_BYTES: Final = 32 * MIB

#: Rows after which a row group is closed whatever their size.
ROW_GROUP_ROWS: Final = 1024 * 1024

#: Entries of one leaf of a list or map, null or not, after which a row group is closed; numbers of four bytes reach
#: ROW_GROUP_BYTES first. One without a value counts as several: no page ends for it.
ROW_GROUP_ENTRIES: Final = 8 * MIB
ENTRY_WITHOUT_VALUE: Final = 4

#: Column chunks (columns times row groups) of a file after which its rows wait compressed for larger row groups, so
#: that more of them come slowly: up to here each takes 3 KiB until the file is complete, beyond what it takes in the
#: footer. They do so, too, after so many bytes of values that are the smallest or largest of a column chunk: Arrow has
#: each five times.
COLUMN_CHUNKS_USUAL: Final = 8 * KIB
EXTREMES_BYTES_USUAL: Final = 16 * MIB

#: What a column chunk of such a row group may say of its values in the footer, beyond how many are null.
STATISTICS_BYTES_MAX: Final = KIB

#: Rows are compressed for them when they hold this many bytes of Arrow data; a row group is closed when they take so
#: many compressed, when a run of so many columns has so many bytes of Arrow data, or when they have so many cells, null
#: or not: reading all of a row group takes eight bytes a cell.
PACKED_STEP_BYTES: Final = 8 * MIB
PACKED_BYTES_MAX: Final = 32 * MIB
PACKED_COLUMNS: Final = 32
PACKED_RUN_BYTES_MAX: Final = 64 * MIB
PACKED_CELLS_MAX: Final = 64 * MIB

#: The same by entries of one leaf of a list or map: those of so many numbers of four bytes. Their pages end where those
#: of other columns do once so many entries of the leaf have no value.
PACKED_STEP_ENTRIES: Final = 2 * MIB
PACKED_ENTRIES_MAX: Final = 16 * MIB
PACKED_EMPTY_MAX: Final = 2 * MIB

#: Column chunks of a segment's data file, or its tail: each takes 130 bytes of the footer, or more by its name and by
#: its smallest and largest value. A segment of more is stored as it is.
COLUMN_CHUNKS_MAX: Final = 128 * KIB

#: Aimed-at uncompressed size of a page: what a random read decompresses too much.
PAGE_BYTES: Final = 256 * KIB

#: Value bytes per page of files that keep values as columns alone: all columns have their pages' ends at the same rows.
PROVEN_PAGE_BYTES: Final = 512 * KIB

#: zstd levels of data pages and of index blocks.
ZSTD_LEVEL_DATA: Final = 1
ZSTD_LEVEL_INDEX: Final = 3

#: Kafka adds the fetch size to a position as a 32-bit int.
POSITION_MAX: Final = 2**30

#: OFFSET index entries are at least this far apart: one per batch would be 97 MB for a GiB of one-record batches.
OFFSET_INDEX_INTERVAL_BYTES: Final = 16 * KIB

#: Batches of one block of the index, and timestamp deltas after which it is closed early (one batch may have more).
BLOCK_BATCHES_MAX: Final = 4096
BLOCK_DELTAS: Final = 256 * 1024

#: Undecided transactions listed in the directory; with more a flag is set and the blocks must be read.
SUMMARY_TRANSACTIONS_MAX: Final = 1000

#: Leader-epoch runs of a segment's batches that are told apart; Kafka's checkpoint has one entry for each.
EPOCH_RUNS_MAX: Final = 100_000

# What is read. A stored object never makes a fetch allocate more than this, whatever its bytes say.

#: One part of a block, decompressed.
BLOCK_PART_BYTES_MAX: Final = 512 * MIB

#: The directory, and the footer of the data file, decompressed.
DIRECTORY_BYTES_MAX: Final = 64 * MIB
FOOTER_BYTES_MAX: Final = 256 * MIB

#: A page of the data file, decompressed, and the values it may claim. One value may be as large as a batch.
PAGE_BYTES_MAX: Final = 1024 * MIB + 16 * MIB
PAGE_VALUES_MAX: Final = 2**28

#: What the index says of encoded values, decompressed: schemas as large as a registry has them.
PROVEN_BYTES_MAX: Final = 64 * MIB
#: Of that the encodings; the rest is for the columns, of a merged file too. Values of further writers keep their bytes.
ENCODINGS_BYTES_MAX: Final = PROVEN_BYTES_MAX // 2

#: Nesting of a Thrift struct.
THRIFT_DEPTH_MAX: Final = 16

#: Ranges of one object that are this close are read as one: a request costs more than the bytes between.
READ_GAP_BYTES: Final = 64 * KIB
