"""What bad rows cost: the same segment without any, with one in 100,000 and with 1 %, in turn in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.conversion import Columns, Memory, convert
from benchmarks.meters import Spent, interleaved, median, spent
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.segments import Segment
from benchmarks.typed_conversion import columns_for, decoder, typed_segment
from benchmarks.typed_payloads import typed_values
from converter.parquet.columns import ERROR

_ROWS = 100_000
_EVERY = {"typed_damage_loss": 100_000, "typed_damage_loss_1_percent": 100}


def damaged(values: Sequence[bytes], every: int) -> list[bytes]:
    """One value of each `every` spoilt, the middle one: in turn without its last byte, or with one byte more, FF."""
    spoilt = list(values)
    for turn, row in enumerate(range(every // 2, len(spoilt), every)):
        value = spoilt[row]
        spoilt[row] = value + b"\xff" if turn % 2 else value[:-1]
    return spoilt


def measure(plan: Plan) -> Cases:
    """Cases of typed_damage_loss and typed_damage_loss_1_percent: by how much fewer rows a CPU second copies, in %.

    Raises:
        ValueError: bad rows did not become dead letters, or good ones did.
    """
    rounds = 1 if plan.quick else 7
    cases: Cases = {name: [] for name in _EVERY}
    for payload in plan.payloads(*_EVERY):
        values = typed_values(payload, _ROWS)
        columns, memory = columns_for(payload, decoder(payload)), Memory()
        segments = [typed_segment(payload, values)]
        for every in _EVERY.values():
            segments.append(typed_segment(payload, damaged(values, every)))
            _check(segments[-1], columns, _ROWS // every)
        clean, *bad = interleaved([partial(_copy, one, memory, columns) for one in segments], rounds)
        for name, runs in zip(_EVERY, bad, strict=True):
            losses = [100 * (1 - good.cpu_s / took.cpu_s) for good, took in zip(clean, runs, strict=True)]
            rate = {"rows_per_cpu_s": _rate(runs), "rows_per_cpu_s_without": _rate(clean)}
            cases[name].append(Case(payload, median(losses), runs=losses, extra=rate))
            say(f"{payload}: {name} {median(losses):.1f} %")
    return cases


def _check(one: Segment, columns: Columns, expected: int) -> None:
    table = pq.read_table(pa.BufferReader(bytes(convert(one, columns=columns).data)), columns=[ERROR])
    found = len(table) - table.column(ERROR).null_count
    if found != expected:
        raise ValueError(f"{one.name}: {found} dead letters, not {expected}")


def _copy(one: Segment, memory: Memory, columns: Columns) -> Spent:
    with spent() as took:
        convert(one, memory, columns)
    return took


def _rate(runs: list[Spent]) -> float:
    return median(_ROWS / took.cpu_s for took in runs)
