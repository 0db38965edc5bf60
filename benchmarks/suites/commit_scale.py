"""What one commit costs a publisher at 1,000, 10,000 and 100,000 live files.

In this process, as a publisher run does it: load the table, read the head, build the entries of new files out of
footers, write manifests, swap. CPU of this process; catalog servers have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog

from benchmarks.live_table import LiveTable, make_table
from benchmarks.meters import Spent, median, spent
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from iceberg_catalog.commit.commit import Change
from iceberg_catalog.connect.open import CatalogSettings, embedded_settings, open_catalog
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from tierberg.stack.lake import Lake

_APPENDED = 100
#: Reads nothing of the head again but what its own commit wrote.
_WARM = SNAPSHOTS_KEPT_MAX


def measure(plan: Plan) -> Cases:
    """Cases of the four measures: by number of live files, on SQLite and files, and on a REST catalog and S3."""
    sizes = (1_000, 5_000) if plan.quick else (1_000, 10_000, 100_000)
    cases: Cases = {"commit_append_cpu": [], "commit_remove_cpu": [], "commit_growth": [], "metadata_bytes": []}
    with _catalogs(plan) as catalogs:
        for name, catalog in catalogs.items():
            appended = [_add(cases, f"{name}, {size:,} files", catalog, size, plan) for size in sizes]
            cases["commit_growth"].append(Case(name, appended[-1] / appended[0]))
    return cases


@contextmanager
def _catalogs(plan: Plan) -> Iterator[dict[str, Catalog]]:
    embedded = open_catalog(embedded_settings(plan.folder / "embedded"))
    if plan.quick:
        yield {"SQLite and files": embedded}
        return
    lake = Lake(plan.folder / "lake")
    lake.start()
    try:
        rest = open_catalog(CatalogSettings("lake", lake.bridge_settings()["catalog"]["properties"]))
        yield {"SQLite and files": embedded, "REST and S3": rest}
    finally:
        lake.stop()


def _add(cases: Cases, name: str, catalog: Catalog, size: int, plan: Plan) -> float:
    """Measures one table; returns the CPU seconds of an append."""
    table = make_table(catalog)
    table.fill(size)
    for _ in range(_WARM):
        _append(table)
    rounds = 5 if plan.quick else 40  # an append in twenty folds manifests
    appends = [_append(table) for _ in range(rounds)]
    removes = [_remove(table) for _ in range(max(rounds // 4, 1))]
    _case(cases["commit_append_cpu"], name, appends)
    _case(cases["commit_remove_cpu"], name, removes)
    metadata = len(table.head().table.metadata.model_dump_json())
    cases["metadata_bytes"].append(Case(name, metadata / 1000, extra={"manifests": len(table.head().manifests)}))
    say(f"  {name}: append {appends}, remove {removes}, metadata {metadata}")
    return sum(item.cpu_s for item in appends) / len(appends)


def _case(cases: list[Case], name: str, runs: list[Spent]) -> None:
    """The mean: what a commit costs in the long run, those that fold included."""
    mean = sum(item.cpu_s for item in runs) / len(runs) * 1000
    extra = {
        "wall_ms": median(item.wall_s for item in runs) * 1000,
        "median_ms": median(item.cpu_s for item in runs) * 1000,
        "max_ms": max(item.cpu_s for item in runs) * 1000,
    }
    cases.append(Case(name, mean, runs=[item.cpu_s * 1000 for item in runs], extra=extra))


def _append(table: LiveTable) -> Spent:
    return _timed(lambda: table.commit(table.head(), Change(append=tuple(table.entries(_APPENDED)))))


def _remove(table: LiveTable) -> Spent:
    """One file from the middle of the table's history."""
    files = table.head().files
    path = files[len(files) // 2].path
    return _timed(lambda: table.commit(table.head(), Change(delete=(path,))))


def _timed(work: Callable[[], None]) -> Spent:
    with spent() as took:
        work()
    return took
