"""Typed values: decoded alone, from the segment to Parquet with columns, and back; beside other libraries and zstd-1.

Rates are per CPU second of all threads; MB are those of the values without wire-format header; a nested record is one
field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.conversion import Memory, convert, replay_all, zstd_floor
from benchmarks.meters import Spent, interleaved, median, spent
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.typed_baselines import per_record, reader
from benchmarks.typed_conversion import columns_for, decoder, steps, typed_segment
from benchmarks.typed_payloads import VALUE_BYTES, split_name, typed_values

#: Per-record libraries get this share of the values: they are slow, and their rate does not depend on how many.
_BASELINE_SHARE = 8


@dataclass(frozen=True, slots=True)
class _Amount:
    """How much work one run is."""

    bytes: int
    fields: int

    def mb_rate(self, runs: list[Spent]) -> list[float]:
        return [self.bytes / 1e6 / took.cpu_s for took in runs]

    def fields_rate(self, runs: list[Spent]) -> list[float]:
        """Millions of fields per CPU second."""
        return [self.fields / 1e6 / took.cpu_s for took in runs]

    def wall(self, runs: list[Spent]) -> dict[str, float]:
        return {"wall_mb_per_s": median(self.bytes / 1e6 / took.wall_s for took in runs)}


def measure(plan: Plan) -> Cases:
    """Cases of typed_decode_rate, typed_copy_rate, typed_proven_rate, their twins, and typed_replay_rate_proven."""
    bytes_max, rounds = (4_000_000, 1) if plan.quick else (32_000_000, 5)
    cases: Cases = {name: [] for name in plan.measures}
    for payload in plan.payloads(*plan.measures):
        for name, case in _measured(payload, bytes_max, rounds).items():
            if name in cases and payload in plan.measures[name].payloads:
                cases[name].append(case)
    return cases


def _measured(payload: str, bytes_max: int, rounds: int) -> dict[str, Case]:
    """A case of every measure this payload can be a case of."""
    form, fields = split_name(payload)
    values = typed_values(payload, bytes_max // VALUE_BYTES[fields])
    some = values[: len(values) // _BASELINE_SHARE]
    made, read, memory = decoder(payload), reader(payload), Memory()
    arrays, one, columns = steps(values), typed_segment(payload, values), columns_for(payload, made)
    prover, proven_memory = columns_for(payload, made, proven=True), Memory()
    always, proven = convert(one, columns=columns), convert(one, columns=prover)
    work: list[Callable[[], object]] = [
        lambda: [made.decode(array) for array in arrays],
        lambda: convert(one, memory, columns),
        lambda: convert(one, proven_memory, prover),
        lambda: convert(one, memory),
        lambda: replay_all(always),
        lambda: replay_all(proven),
        lambda: [read(value) for value in some],
        lambda: per_record(some, read),
    ]
    for each in work:  # compiles and loads what the first call does
        each()
    decode, copy, prove, raw, fetch, restore, library, baseline, floor = interleaved(
        [*(partial(_spent, each) for each in work), partial(zstd_floor, b"".join(values))], rounds
    )
    whole, part = _amount(values, fields), _amount(some, fields)
    beside = {
        "per_record_mb_per_cpu_s": median(part.mb_rate(baseline)),
        "per_record_without_arrow_mb_per_cpu_s": median(part.mb_rate(library)),
        "zstd1_mb_per_cpu_s": median(whole.mb_rate(floor)),
        "raw_copy_mb_per_cpu_s": median(whole.mb_rate(raw)),
    }
    say(f"{payload}: {median(whole.mb_rate(decode)):.0f} and {median(whole.mb_rate(copy)):.0f} MB per CPU second")
    per_record_mb, per_record_fields = part.mb_rate(baseline), part.fields_rate(baseline)
    zstd_mb, zstd_fields = whole.mb_rate(floor), whole.fields_rate(floor)
    tail = "_avro" if form == "avro" else ""
    return {
        "typed_decode_rate": _case(payload, whole.mb_rate(decode), per_record_mb, beside | whole.wall(decode)),
        "typed_decode_rate_fields": _case(payload, whole.fields_rate(decode), per_record_fields, {}),
        f"typed_copy_rate{tail}": _case(payload, whole.mb_rate(copy), zstd_mb, beside | whole.wall(copy)),
        f"typed_copy_rate{tail}_fields": _case(payload, whole.fields_rate(copy), zstd_fields, {}),
        "typed_proven_rate": _case(payload, whole.mb_rate(prove), zstd_mb, beside | whole.wall(prove)),
        "typed_proven_rate_fields": _case(payload, whole.fields_rate(prove), zstd_fields, {}),
        "typed_replay_rate_proven": _case(payload, whole.mb_rate(restore), whole.mb_rate(fetch), whole.wall(restore)),
    }


def _case(payload: str, rates: list[float], floor: list[float], beside: dict[str, float]) -> Case:
    return Case(payload, median(rates), median(floor), rates, beside)


def _amount(values: list[bytes], fields: int) -> _Amount:
    return _Amount(sum(len(value) for value in values), len(values) * fields)


def _spent(work: Callable[[], object]) -> Spent:
    with spent() as took:
        work()
    return took
