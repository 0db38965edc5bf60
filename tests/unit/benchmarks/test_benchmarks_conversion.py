"""What is timed is the whole thing: generated segments go through the converter and come back byte for byte."""

from pathlib import Path
from types import ModuleType

import pytest
import zstandard

from benchmarks.conversion import blocks, chunk, convert, replay_all, unzstd_floor, zstd_floor, zstd_parts
from benchmarks.measures import load_measures, select
from benchmarks.run import Plan
from benchmarks.segments import segment
from benchmarks.suites import convert as convert_suite
from benchmarks.suites import index_size, random_read, replay


@pytest.mark.parametrize(("payload", "batch"), [("synthetic-1k", "16k"), ("random-100", "1m"), ("synthetic-20", "one")])
def test_an_uncompressed_segment_comes_back_byte_for_byte(payload: str, batch: int) -> None:
    one = segment(payload, "none", batch, 400_000)
    stored = convert(one)
    served = b"".join(bytes(chunk(stored, block, 0, len(block.batches))) for block in blocks(stored))
    assert served == one.data
    assert not stored.kept
    assert replay_all(stored) == len(one.data)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_segment_is_served_with_the_size_of_its_records(codec: str) -> None:
    one = segment("flights", codec, "16k", 400_000)
    stored = convert(one)
    assert replay_all(stored) == one.records_bytes
    assert not stored.kept


def test_the_floors_do_the_work_they_claim() -> None:
    data = segment("synthetic-100", "none", "16k", 3_000_000).data
    assert zstd_floor(data).cpu_s > 0
    parts = zstd_parts(data, 100_000)
    assert b"".join(zstandard.ZstdDecompressor().decompress(part) for part in parts) == data
    assert unzstd_floor(parts).cpu_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("suite", [convert_suite, replay, random_read, index_size])
def test_a_suite_of_the_converter_has_a_case_for_each_payload(suite: ModuleType, tmp_path: Path) -> None:
    name = suite.__name__.rsplit(".", 1)[1]
    measures = select(load_measures(), [name])
    cases = suite.measure(Plan(measures, True, tmp_path))
    for measure in measures.values():
        for payload in measure.payloads:
            assert any(case.name.startswith(payload) for case in cases[measure.id]), (measure.id, payload)
        assert all(case.value > 0 for case in cases[measure.id])
