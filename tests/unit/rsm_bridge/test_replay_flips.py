"""Stored objects with flipped bits: a named error or the right bytes, never wrong bytes, never anything else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import converter.index.block_writer
from converter.errors import SegmentError
from converter.index.codec import decode_directory
from converter.types import Cause
from tests.worlds.index_support import Batch, Record, Stored, write

FLIPS_PER_OBJECT = 700
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def stored() -> Stored:
    """A segment with some of everything, in three blocks."""
    rng = random.Random(5)
    batches: list[Batch] = []
    for i in range(24):
        records = [
            Record(
                k,
                rng.randrange(50),
                rng.choice([None, b"", rng.randbytes(9)]),
                rng.choice([None, b"", b"text %d " % k * 20, rng.randbytes(100)]),
                tuple((b"h%d" % h, rng.choice([None, rng.randbytes(5)])) for h in range(rng.randrange(3))),
            )
            for k in range(5)
        ]
        batch = Batch(i * 5, records, 4, producer_id=i % 3, base_sequence=i, exact=i % 5 == 0)
        batch.kept, batch.cause = i % 7 == 3, Cause.SERVED_SIZE if i % 7 == 3 else Cause.NONE
        batches.append(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converter.index.block_writer, "BLOCK_BATCHES_MAX", 9)
        return write([batches[:10], batches[10:]], "string")


def flip(data: bytes, rng: random.Random) -> bytes:
    """One bit, or a byte, or a stretch of bytes."""
    out = bytearray(data)
    at = rng.randrange(len(out))
    kind = rng.random()
    if kind < 0.8:
        out[at] ^= 1 << rng.randrange(8)
    elif kind < 0.9:
        out[at] = rng.randrange(256)
    else:
        end = min(at + rng.randrange(1, 9), len(out))
        out[at:end] = rng.randbytes(end - at)
    return bytes(out)


def serve(stored: Stored) -> bytes | str:
    """Everything the objects give, or the kind of the error."""
    try:
        directory = decode_directory(stored.written.index)
        return replace(stored, written=replace(stored.written, directory=directory)).read_all(2000)
    except SegmentError as error:
        return error.kind


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["data", "kept", "index"])
def test_flipped_bits(stored: Stored, name: str, seed: int) -> None:
    rng = random.Random(f"{name}{seed}")
    assert serve(stored) == stored.served
    caught = 0
    for _ in range(FLIPS_PER_OBJECT // len(SEEDS)):
        if name == "index":
            damaged = replace(stored, written=replace(stored.written, index=flip(stored.written.index, rng)))
        elif name == "data":
            damaged = replace(stored, data=flip(stored.data, rng))
        else:
            damaged = replace(stored, kept=flip(stored.kept, rng))
        found = serve(damaged)
        assert found in ("corrupt_object", stored.served)
        caught += found == "corrupt_object"
    # Kept bytes are all served; of data file and index some bytes are not read by a fetch.
    assert caught > FLIPS_PER_OBJECT // len(SEEDS) * (0.9 if name == "kept" else 0.3)


def test_flips_within_pages_reach_the_page_reader(stored: Stored) -> None:
    """Checksums of the index cannot help here: only bounds checks and the batches' CRC32C can."""
    rng = random.Random(9)
    pages = stored.block(0).pages
    for _ in range(FLIPS_PER_OBJECT):
        page = rng.randrange(len(pages.offset))
        start, length = int(pages.offset[page]), int(pages.length[page])
        damaged = stored.data[:start] + flip(stored.data[start : start + length], rng) + stored.data[start + length :]
        assert serve(replace(stored, data=damaged)) in ("corrupt_object", stored.served)


@pytest.mark.parametrize("name", ["data", "kept"])
def test_short_and_swapped_ranges(stored: Stored, name: str) -> None:
    whole = getattr(stored, name)
    cut = replace(stored, **{name: whole[: len(whole) // 2]})
    assert serve(cut) == "corrupt_object"
    shifted = replace(stored, **{name: whole[1:] + b"\0"})
    assert serve(shifted) == "corrupt_object"


def test_index_cut_anywhere_in_its_directory(stored: Stored) -> None:
    for size in range(0, stored.directory.directory_size, 7):
        with pytest.raises(SegmentError, match="cut") as caught:
            decode_directory(stored.written.index[:size])
        assert caught.value.kind == "corrupt_object"


def test_the_error_names_the_batch_of_the_segment(stored: Stored) -> None:
    block = stored.block(1)
    broken = replace(stored, kept=bytes(len(stored.kept)))
    first_kept = next(i for i, flags in enumerate(block.batches["flags"].tolist()) if flags & 1)
    with pytest.raises(SegmentError) as caught:
        broken.read(block, block.first_batch, block.first_batch + len(block.batches) - 1)
    assert caught.value.batch == block.first_batch + first_kept
