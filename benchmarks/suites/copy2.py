"""The second copy (projection) of a stream of orders: costs of runs, files, what queries need, and the whole bill.

Two stock brokers get the same stream: one on a bridge, one on Kafka's LocalTieredStorage with a consumer that writes
the same table. All on the same cores, one after another.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients.process import run_together
from benchmarks.limits import PROJECTION_S
from benchmarks.meters import Sampler, Spent, median, tree_cpu_s
from benchmarks.orders import BUCKETS, Sized
from benchmarks.projection_jobs import COLUMNS, Files, Jobs, jobs, write_config
from benchmarks.projection_queries import query_cases
from benchmarks.projection_upserts import upsert_cases, upsert_projections
from benchmarks.projection_world import TOPIC, Fed, fed
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from rsm_bridge.limits import MIB

_LAYOUT = {"partition_by": ["day(_kafka_timestamp)", f"bucket({BUCKETS}, customer_id)"], "sort_by": ["customer_id"]}
#: Of the projection whose files are looked at: small enough that a day is more than one file.
_FILE_MIB = 32
_DAILY = {"partition_by": ["day(_kafka_timestamp)"], "sort_by": ["customer_id"], "target_file_mib": _FILE_MIB}
_BATCH = 500_000
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Bill:
    """CPU seconds, bytes that the broker sent, and bytes stored."""

    cpu_s: float
    egress_bytes: float
    stored_bytes: float

    def plus(self, other: _Bill) -> _Bill:
        return _Bill(
            self.cpu_s + other.cpu_s,
            self.egress_bytes + other.egress_bytes,
            self.stored_bytes + other.stored_bytes,
        )


def measure(plan: Plan) -> Cases:
    """Cases of every measure of the projection."""
    sized = Sized(200_000, 20) if plan.quick else Sized()
    plain, consumer = _plain(plan.folder / "plain", sized)
    say(f"  plain {plain}, consumer {consumer}")
    with fed(plan.folder / "tierberg", sized, bridged=True) as topic:
        first = _first(topic)
        second = _by_command(topic, plan.folder)
        say(f"  the topic's table {first}, the projection {second}")
        rounds = 1 if plan.quick else _ROUNDS
        typed = [{"table": f"typed_{n}", "select": COLUMNS, **_LAYOUT} for n in range(rounds + 1)]
        whole = [{"table": f"whole_{n}", **_DAILY} for n in range(rounds)]
        config = write_config(
            plan.folder / "jobs.yaml", topic.remote, [*typed, *whole, *upsert_projections()], plan.folder / "scratch"
        )
        with jobs(config) as running:
            cases = _append_cases(running, rounds)
            cases |= query_cases(running, "typed_1", sized)
            cases |= upsert_cases(running, topic, rounds)
    return cases | _bill_cases(plain, consumer, first, second)


def _plain(folder: Path, sized: Sized) -> tuple[_Bill, _Bill]:
    """Plain tiering, and what the consumer adds to it: it reads while everything is on the broker's disk still."""
    with fed(folder, sized, bridged=False) as topic:
        began = topic.cpu_s()[0]
        topic.send(sized.orders)
        topic.settle()
        before, out = topic.cpu_s()[0], topic.egress_bytes()[0]
        settings = {
            "bootstrap": topic.broker.bootstrap,
            "topic": TOPIC,
            "events": sized.orders,
            "folder": str(folder / "sink"),
            "batch": _BATCH,
        }
        results, _ = run_together("sink", [settings])
        after, sent = topic.cpu_s()[0], topic.egress_bytes()[0] - out
        topic.tier()
        ended, copied = topic.cpu_s()[0], topic.egress_bytes()[1]
        say(f"  consumer: {results[0]['files']:.0f} files")
        consumer = _Bill(after - before + results[0]["cpu_s"], sent, results[0]["bytes"])
        return _Bill(before - began + ended - after, copied, topic.stored_bytes()), consumer


def _first(topic: Fed) -> _Bill:
    """The topic's table: broker and bridge."""
    began = sum(topic.cpu_s())
    topic.send(topic.sized.orders)
    topic.settle()
    topic.tier()
    return _Bill(sum(topic.cpu_s()) - began, sum(topic.egress_bytes()), topic.stored_bytes())


def _by_command(topic: Fed, folder: Path) -> _Bill:
    """The projection by the command: a process that starts, reads everything once and ends."""
    projection = {"table": "billed", "select": COLUMNS, **_LAYOUT}
    config = write_config(folder / "bill.yaml", topic.remote, [projection], folder / "scratch")
    out, before = topic.egress_bytes()[0], topic.stored_bytes()
    argv = [sys.executable, "-m", "tierberg.cli", "repartition", TOPIC, "--config", str(config)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with Sampler(lambda: tree_cpu_s(process.pid) if process.poll() is None else 0.0, 0.1) as sampler:
                code = process.wait(PROJECTION_S)
        finally:
            process.kill()
    if code:
        raise RuntimeError(f"tierberg repartition ended with code {code}")
    return _Bill(sampler.peak, topic.egress_bytes()[0] - out, topic.stored_bytes() - before)


def _append_cases(running: Jobs, rounds: int) -> Cases:
    """The first run is not counted: Java compiles in it."""
    running.run("typed_0")
    found: dict[str, list[Spent]] = {"typed": [], "whole": []}
    for number in range(rounds):
        found["typed"].append(running.run(f"typed_{number + 1}"))
        found["whole"].append(running.run(f"whole_{number}"))
    names = {"typed": "columns of the value", "whole": "every column, with keys, headers and values"}
    files = {"typed": running.files("typed_1"), "whole": running.files("whole_0")}
    cases: Cases = {"copy2_append_cpu": [_append(names[kind], runs, files[kind]) for kind, runs in found.items()]}
    off = abs(files["whole"].median_bytes / (_FILE_MIB * MIB) - 1)
    extra = {"median_mib": files["whole"].median_bytes / MIB, "files": files["whole"].count, "target_mib": _FILE_MIB}
    cases["copy2_file_size"] = [Case("by day, each day more than one file", off, extra=extra)]
    say(f"  {cases}")
    return cases


def _append(name: str, runs: list[Spent], files: Files) -> Case:
    gigabytes = files.arrow_bytes / 1e9
    wall_s = median(run.wall_s for run in runs)
    costs = [run.cpu_s / gigabytes for run in runs]
    extra = {
        "rows_per_s": files.rows / wall_s,
        "mb_per_s": files.arrow_bytes / 1e6 / wall_s,
        "arrow_bytes_per_row": files.row_bytes,
        "rows": files.rows,
        "files": files.count,
        "median_file_mib": files.median_bytes / MIB,
    }
    return Case(name, median(costs), None, costs, extra)


def _bill_cases(plain: _Bill, consumer: _Bill, first: _Bill, second: _Bill) -> Cases:
    """Each beside plain tiering with the consumer."""
    bills = {
        "copy 1": first,
        "copies 1 and 2": first.plus(second),
        "plain tiering": plain,
        "plain tiering and a consumer": plain.plus(consumer),
    }
    rival = bills["plain tiering and a consumer"]
    return {
        "copy2_bill_cpu": [Case(name, bill.cpu_s, rival.cpu_s) for name, bill in bills.items()],
        "copy2_bill_egress": [
            Case(name, bill.egress_bytes / 1e6, rival.egress_bytes / 1e6) for name, bill in bills.items()
        ],
        "copy2_bill_stored": [
            Case(name, bill.stored_bytes / 1e6, rival.stored_bytes / 1e6) for name, bill in bills.items()
        ],
    }
