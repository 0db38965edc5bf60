"""`python -m tests.histories`: random histories of every world, at least `--steps` steps in each.

Prints progress with the seeds, then how often each action ran with each of its faults and kinds. A history that fails
is printed shrunk, as steps that `tests/histories/test_known_histories.py` can replay. Ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests.histories.generator import RETENTIONS
from tests.histories.row_oracle import JUDGED
from tests.histories.running import Counts, Failure, kind_of, run_history, shrink, text_of

BATCH_STEPS = 20_000
FAILURES_SHOWN_MAX = 5
WORLDS = [(clean, retention) for clean in (True, False) for retention in RETENTIONS]


@dataclass(slots=True)
class Done:
    """A batch of histories of one world, seeds [first, next)."""

    world: int
    first: int
    next: int
    counts: Counts = field(default_factory=Counts)
    judged: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


def batch(world: int, first: int, steps: int) -> Done:
    """Histories of one world from a seed on, until they have made so many steps."""
    clean, retention = WORLDS[world]
    done, seed = Done(world, first, first), first
    JUDGED.clear()
    kinds: set[str] = set()
    while done.counts.steps < steps:
        failure = run_history(seed, clean=clean, retention=retention, counts=done.counts)
        seed += 1
        if failure is not None and (kind_of(failure.error) not in kinds):
            kinds.add(kind_of(failure.error))
            done.failures.append(shrink(failure))
    done.next, done.judged = seed, dict(JUDGED)
    return done


def name_of(world: int) -> str:
    """A world in words."""
    clean, retention = WORLDS[world]
    return f"{'clean' if clean else 'unclean'}, {retention if isinstance(retention, str) else 'two days'}"


def run_world(world: int, seed: int, steps: int, processes: int) -> tuple[Counts, list[Failure]]:
    """All of one world. Batches begin a million seeds apart, so that a seed says where a history came from."""
    counts, failures, judged = Counts(), list[Failure](), Counts().actions
    started = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        wanted = [(seed + number * 1_000_000) for number in range(-(-steps // BATCH_STEPS))]
        for future in as_completed([pool.submit(batch, world, first, BATCH_STEPS) for first in wanted]):
            done = future.result()
            counts.update(done.counts)
            judged.update(done.judged)
            failures += done.failures
            print(
                f"{name_of(world):24} {counts.steps:10,} steps, {time.monotonic() - started:6.0f} s, "
                f"seeds {done.first} to {done.next - 1}, {len(failures)} failed",
                flush=True,
            )
            for failure in done.failures:
                print(text_of(failure), flush=True)
    print(counts.report())
    print("rows: " + ", ".join(f"{number:,} {word}" for word, number in sorted(judged.items())), flush=True)
    return counts, failures


def main() -> int:
    """All worlds, or those that are named by number."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="in each world, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--processes", type=int, default=2)
    numbered = "; ".join(f"{number}: {name_of(number)}" for number in range(len(WORLDS)))
    parser.add_argument("--worlds", type=int, nargs="*", default=range(len(WORLDS)), help=numbered)
    options = parser.parse_args()
    total, failed = 0, 0
    for world in options.worlds:
        counts, failures = run_world(world, options.seed, options.steps, options.processes)
        total, failed = total + counts.steps, failed + len(failures)
    print(f"{total:,} steps in {len(options.worlds)} worlds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
