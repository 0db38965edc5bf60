"""What changes cost in tables of three sizes, in each way to write them."""

from __future__ import annotations

from typing import Any

from benchmarks.meters import Spent, median
from benchmarks.orders import BUCKETS, KEYS
from benchmarks.projection_jobs import COLUMNS, Jobs
from benchmarks.projection_world import Fed
from benchmarks.results import Case, Cases
from benchmarks.run import say

CHANGES = 50_000
#: Ways to write, by name in the results.
_WAYS: dict[str, dict[str, Any]] = {
    "merge-on-read": {"row_writes": "merge-on-read"},
    "deletion vectors": {"row_writes": "merge-on-read", "format_version": 3},
    "copy-on-write": {"row_writes": "copy-on-write"},
}


def upsert_projections() -> list[dict[str, Any]]:
    """Rules: each way for each size. Cancelled orders leave the table, so that there are deletes too."""
    return [
        {
            "table": _table(way, key),
            "mode": "upsert",
            "key": [key],
            "select": COLUMNS,
            "where": "status <> 'CANCELLED'",
            "partition_by": [f"bucket({BUCKETS}, {key})"],
            "sort_by": [key],
            **given,
        }
        for way, given in _WAYS.items()
        for key in KEYS
    ]


def upsert_cases(running: Jobs, topic: Fed, rounds: int) -> Cases:
    """Fills every table, then changes all of them; each round's changes are those of one segment per partition."""
    loads = {(way, key): running.run(_table(way, key)) for way in _WAYS for key in KEYS}
    found: dict[tuple[str, str], list[Spent]] = {both: [] for both in loads}
    # The first round is not counted: Java compiles in it.
    for number in range(rounds + 1):
        topic.send(CHANGES)
        topic.tier()
        for way, key in loads:
            spent = running.run(_table(way, key))
            if number:
                found[way, key].append(spent)
    row_bytes = running.files(_table("copy-on-write", "order_id")).row_bytes
    cases: Cases = {"copy2_upsert_cpu": [], "copy2_upsert_load": [], "copy2_upsert_growth": []}
    for way in _WAYS:
        costs = {key: median(run.cpu_s for run in found[way, key]) for key in KEYS}
        for key in KEYS:
            name = f"{way}, {topic.sized.keys(key):,} keys"
            runs, wall_s = found[way, key], median(run.wall_s for run in found[way, key])
            cases["copy2_upsert_cpu"].append(
                Case(
                    name, costs[key], None, [run.cpu_s for run in runs], _rates(CHANGES, row_bytes, costs[key], wall_s)
                )
            )
            load = loads[way, key]
            extra = _rates(topic.sized.orders, row_bytes, load.cpu_s, load.wall_s)
            cases["copy2_upsert_load"].append(Case(name, extra["cpu_s_per_gb"], None, [], extra))
        if way != "copy-on-write":
            cases["copy2_upsert_growth"].append(Case(way, costs["order_id"] / costs["customer_id"]))
    say(f"  {cases}")
    return cases


def _rates(changes: int, row_bytes: float, cpu_s: float, wall_s: float) -> dict[str, float]:
    size = changes * row_bytes
    return {
        "rows_per_s": changes / wall_s,
        "mb_per_s": size / 1e6 / wall_s,
        "cpu_s_per_gb": cpu_s / (size / 1e9),
        "cpu_us_per_change": cpu_s / changes * 1e6,
        "wall_s": wall_s,
    }


def _table(way: str, key: str) -> str:
    return f"{way.replace(' ', '_').replace('-', '_')}_by_{key}"
