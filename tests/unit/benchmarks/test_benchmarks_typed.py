"""Typed payloads are what they say they are, and what is timed gives every record its columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.conversion import blocks, chunk, convert
from benchmarks.measures import load_measures, select
from benchmarks.run import Plan
from benchmarks.suites import typed_damage, typed_rate, typed_size
from benchmarks.suites.typed_damage import damaged
from benchmarks.typed_baselines import per_record, reader
from benchmarks.typed_conversion import columns_for, decoder, steps, typed_segment
from benchmarks.typed_payloads import FIELDS, TYPED_PAYLOADS, VALUE_BYTES, split_name, typed_values
from converter.parquet.columns import ERROR, RAW_VALUE

_ROWS = 400


@pytest.mark.parametrize("payload", TYPED_PAYLOADS)
def test_values_have_the_size_they_are_named_for_and_are_the_same_every_time(payload: str) -> None:
    values = typed_values(payload, 2_000)
    wanted = VALUE_BYTES[split_name(payload)[1]]
    assert sum(map(len, values)) / len(values) == pytest.approx(wanted, rel=0.02)
    assert len({len(value) for value in values}) > 100
    typed_values.cache_clear()
    assert typed_values(payload, 2_000) == values


@pytest.mark.parametrize("count", [16, 50])
def test_the_fields_are_as_many_as_named_and_each_once(count: int) -> None:
    assert len({one.name for one in FIELDS[count]}) == len(FIELDS[count]) == count


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="avro-17"):
        typed_values("avro-17", 1)


def plain(value: Any) -> Any:
    """As the other formats' readers give it: text of a number, time without zone."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items() if name != "_additional"}
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


@pytest.mark.parametrize("payload", ["avro-16", "avro-50", "protobuf-16", "protobuf-50"])
def test_the_baseline_reads_what_the_decoder_reads(payload: str) -> None:
    values = typed_values(payload, _ROWS)
    states = ("PLACED", "PAID", "PACKED", "SHIPPED", "DELIVERED", "RETURNED")
    theirs = per_record(values, reader(payload)).to_pylist()
    ours = decoder(payload).decode(pa.array(values, pa.binary())).columns.to_pylist()
    enums = [one.name for one in FIELDS[split_name(payload)[1]] if one.kind == "enum"]
    for their, our in zip(theirs, ours, strict=True):
        if payload.startswith("protobuf"):
            their |= {name: states[their[name]] for name in enums}
        assert {name: plain(our[name]) for name in their} == {name: plain(value) for name, value in their.items()}


def test_the_json_baseline_reads_every_field() -> None:
    values = typed_values("json-16", _ROWS)
    assert per_record(values, reader("json-16")).type.names == [one.name for one in FIELDS[16]]


@pytest.mark.parametrize("payload", TYPED_PAYLOADS)
def test_a_typed_copy_has_columns_and_serves_the_same_bytes(payload: str) -> None:
    values = typed_values(payload, _ROWS)
    one = typed_segment(payload, values)
    stored = convert(one, columns=columns_for(payload, decoder(payload)))
    assert b"".join(bytes(chunk(stored, block, 0, len(block.batches))) for block in blocks(stored)) == one.data
    rows = pq.read_table(io.BytesIO(stored.data))
    assert [value[-len(given) :] for value, given in zip(rows[RAW_VALUE].to_pylist(), values, strict=True)] == values
    assert rows[ERROR].null_count == len(values)
    alone = decoder(payload).decode(pa.array(values, pa.binary())).columns
    for name in (one.name for one in FIELDS[split_name(payload)[1]]):
        assert rows[name].to_pylist() == alone.field(name).to_pylist(), name


@pytest.mark.parametrize("payload", TYPED_PAYLOADS)
def test_a_proven_copy_has_columns_alone_and_serves_the_same_bytes(payload: str) -> None:
    values = typed_values(payload, _ROWS)
    one = typed_segment(payload, values)
    made = decoder(payload)
    always = convert(one, columns=columns_for(payload, made))
    stored = convert(one, columns=columns_for(payload, made, proven=True))
    assert b"".join(bytes(chunk(stored, block, 0, len(block.batches))) for block in blocks(stored)) == one.data
    rows = pq.read_table(io.BytesIO(stored.data))
    assert rows[RAW_VALUE].null_count == len(values)
    assert rows.drop_columns(RAW_VALUE) == pq.read_table(io.BytesIO(always.data)).drop_columns(RAW_VALUE)


def test_steps_hold_all_values_in_order() -> None:
    values = typed_values("avro-50", 5_000)
    arrays = steps(values)
    assert len(arrays) == 3
    assert [value for array in arrays for value in array.to_pylist()] == values
    assert all(sum(map(len, array.to_pylist())) < 4.3e6 for array in arrays)


@pytest.mark.parametrize("payload", ["avro-16", "protobuf-16", "json-16"])
def test_spoilt_values_are_dead_letters_and_no_others(payload: str) -> None:
    values = typed_values(payload, _ROWS)
    errors = decoder(payload).decode(pa.array(damaged(values, 10), pa.binary())).errors
    assert [row for row, error in enumerate(errors.to_pylist()) if error] == list(range(5, _ROWS, 10))


def test_dead_letters_that_are_not_as_many_as_expected_stop_the_suite() -> None:
    values = typed_values("avro-16", _ROWS)
    one = typed_segment("avro-16", damaged(values, 100))
    columns = columns_for("avro-16", decoder("avro-16"))
    typed_damage._check(one, columns, 4)
    with pytest.raises(ValueError, match="4 dead letters, not 3"):
        typed_damage._check(one, columns, 3)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [typed_rate, typed_size, typed_damage])
def test_a_suite_has_a_case_for_each_payload(suite: Any, tmp_path: Path) -> None:
    name = suite.__name__.rsplit(".", 1)[1]
    measures = select(load_measures(), [name])
    cases = suite.measure(Plan(measures, True, tmp_path))
    for measure in measures.values():
        assert [case.name for case in cases[measure.id]] == list(measure.payloads)


def test_make_runs_the_suites_of_typed_values() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    suites = {measure.suite for name, measure in load_measures().items() if name.startswith("typed_")}
    assert suites == {"typed_rate", "typed_size", "typed_damage"}
    (command,) = (line for line in makefile.splitlines() if "--only typed_" in line)
    assert {word.strip() for word in command.split("--only")[1:]} == suites
