"""Every figure in docs/objections.md that is a benchmark's is the one in benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "objections.md"


def cases(measure: str) -> dict[str, dict[str, Any]]:
    """A result's cases by their name."""
    document = json.loads((ROOT / "benchmarks" / "results" / f"{measure}.json").read_text())
    return {case["case"]: case for case in document["cases"]}


def span(values: list[float], places: int) -> str:
    return f"{min(values):.{places}f} to {max(values):.{places}f}"


def of(measure: str, field: str = "value") -> list[float]:
    return [case[field] for case in cases(measure).values()]


def time(milliseconds: float) -> str:
    """As the page has it: two digits of milliseconds, or seconds."""
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.2g} ms"


def conversion() -> str:
    return (
        f"broker: {span(of('copy_cpu_broker'), 2)} CPU-s per GB, Kafka's own LocalTieredStorage "
        f"{span(of('copy_cpu_broker', 'floor'), 2)}; bridge: {span(of('copy_cpu_bridge'), 1)}, of which zstd-1 alone "
        f"{span(of('copy_cpu_bridge', 'floor'), 1)}"
    )


def stalls() -> str:
    quiet = cases("produce_p99_backfill_0")["synthetic-1k, plaintext"]
    busy = cases("produce_p99_backfill_10")["synthetic-1k, 60 MB/s, plaintext"]
    return (
        f"{quiet['value']:.1f} ms against {quiet['floor']:.1f} with nobody back-filling; {busy['value']:.0f} against "
        f"{busy['floor']:.0f} while ten consumers read {busy['backfill_mb_per_s']:.0f} MB/s of history"
    )


def rebuilding() -> str:
    consumed = [*cases("consume_rate_1").items(), *cases("consume_rate_4").items()]
    hard = [case["times_floor"] for name, case in consumed if name == "random-1k"]
    others = [case["times_floor"] for name, case in consumed if name != "random-1k"]
    return (
        f"1 MiB at a random offset: {span(of('random_read_cpu_p50'), 1)} CPU-ms; full consume ÷ LocalTieredStorage: "
        f"{min(others):.2f} to {max(others):.1f}, incompressible 1 KB records {span(hard, 2)}"
    )


def layout() -> str:
    (query,) = cases("copy2_query_one_key").values()
    upserts = cases("copy2_upsert_cpu")
    first, second = query["copy_1_mb"], query["copy_2_mb"]
    append = cases("copy2_append_cpu")["columns of the value"]["value"]
    most, least = (upserts[f"merge-on-read, {keys} keys"]["value"] for keys in ("5,000,000", "100,000"))
    return (
        f"one customer on one day opens {query['copy_2_files']:.0f} file, {second:.1f} MB, where the topic's "
        f"table needs {query['copy_1_files']:.0f} files, {first:.0f} MB ({first / second:.0f} ×); append "
        f"{append:.1f} CPU-s per GB; 50,000 upserts {most:.1f} CPU-s "
        f"among 5 M keys, {least:.1f} among 100,000"
    )


def bill() -> str:
    sent, cpu, stored = (cases(f"copy2_bill_{name}")["copies 1 and 2"] for name in ("egress", "cpu", "stored"))
    return (
        f"broker sends {sent['value']:.0f} MB, not {sent['floor']:.0f}; {cpu['value']:.0f} CPU-s, not "
        f"{cpu['floor']:.0f}; {stored['value']:.0f} MB stored, not {stored['floor']:.0f}"
    )


def merging() -> str:
    (case,) = cases("merge_fetch_max").values()
    during, before, after = (
        [time(case[f"{when}_{which}_ms"]) for which in ("p50", "p99", "max")] for when in ("during", "before", "after")
    )
    return (
        f"{case['files_before']:,.0f} files became {case['files_after']:.0f} in {case['merge_s']:.0f} s beside four "
        f"consumers that sought without pause; every record compared. From seek to first record meanwhile: {during[0]} "
        f"(p50), {during[1]} (p99), {during[2]} (slowest); before {', '.join(before)}; after {', '.join(after)}"
    )


def freshness() -> str:
    (case,) = cases("freshness_p99").values()
    return (
        f"{case['p50_s']:.1f} s (p50), {case['value']:.1f} s (p99); until tiered by the broker "
        f"{case['tiered_p50_s']:.1f} and {case['tiered_p99_s']:.1f} s"
    )


@pytest.mark.parametrize("said", [conversion, stalls, rebuilding, layout, bill, merging, freshness])
def test_the_page_has_the_figures_of_the_results(said: Callable[[], str]) -> None:
    assert said() in PAGE.read_text(encoding="utf-8")
