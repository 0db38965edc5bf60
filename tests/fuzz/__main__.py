"""`make fuzz MINUTES=n`: every target for its share of the time, in child processes; ends with a table and a verdict.

    python -m tests.fuzz --minutes 30                      all targets, two at a time
    python -m tests.fuzz --inputs 200000 --target values-avro --target segment-zstd
    python -m tests.fuzz --again build/fuzz/failures/values-avro/17.input

What is found lies in build/fuzz: failing inputs with their tracebacks, what the children printed and logged
(failures/TARGET/child.log), and the corpus, which the next run goes on from.
A seed repeats a run where the corpus is the same (`--fresh` forgets it).
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.child import try_one
from tests.fuzz.meter import Meter
from tests.fuzz.registry import target_named, targets
from tests.fuzz.target import MIB
from tests.fuzz.watch import ROOT, Plan, Result, fuzz

PROCESSES = 2


def main(arguments: Sequence[str]) -> int:
    """0 when nothing failed, 1 when something did, 2 for words that make no sense."""
    options = _options(arguments)
    if options.again is not None:
        words, added = _again(options.again)
        print(f"{words}; {added // MIB} MiB")
        return 0
    names = options.target or list(targets())
    unknown = [name for name in names if name not in targets()]
    if unknown:
        print(f"no target {', '.join(unknown)}; there are {', '.join(targets())}", file=sys.stderr)
        return 2
    if options.fresh:
        shutil.rmtree(options.folder, ignore_errors=True)
    for name in names:  # what other targets have found stays
        shutil.rmtree(options.folder / "failures" / name, ignore_errors=True)
    seed = options.seed or secrets.token_hex(4)
    seconds = options.minutes * 60 * PROCESSES / len(names)
    print(f"seed {seed}, {len(names)} targets, {PROCESSES} at a time; findings in {options.folder}", flush=True)
    plan = Plan(seed, options.inputs, seconds, options.folder.resolve())
    results: list[Result] = []
    with ThreadPoolExecutor(PROCESSES) as pool:
        for result in pool.map(lambda name: fuzz(name, plan, _say), names):
            results.append(result)
            _say(f"{len(results)}/{len(names)} {_row(result)}")
    return _report(results, options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=0.0, help="for all targets together; 0: until --inputs")
    parser.add_argument("--inputs", type=int, default=0, help="of each target; 0: as many as there is time for")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", default="", help="default: a new one, which is printed")
    parser.add_argument("--fresh", action="store_true", help="forget the corpus of earlier runs")
    parser.add_argument("--again", type=Path, help="run one input, a file below failures/TARGET/, once more")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="where findings and corpus lie")
    found = parser.parse_args(arguments)
    if found.again is None and not found.minutes and not found.inputs:
        parser.error("--minutes or --inputs is needed")
    return found


def _again(path: Path) -> tuple[str, int]:
    target = target_named(path.parent.name)
    target.prepare()
    try:
        return try_one(target, path.read_bytes(), Meter())
    finally:
        target.close()


def _say(text: str) -> None:
    print(text, flush=True)


def _row(result: Result) -> str:
    rate = result.inputs / result.seconds if result.seconds else 0.0
    state = "ok" if result.passed else f"{result.failures} failures, {len(result.deaths)} deaths"
    return (
        f"{result.name:18} {result.inputs:>10,} inputs {rate:>8,.0f}/s {result.peak_bytes // MIB:>5} MiB "
        f"{result.corpus:>5} in the corpus  {state}"
    )


def _report(results: Sequence[Result], options: argparse.Namespace) -> int:
    print()
    for result in results:
        print(_row(result))
    short = [result.name for result in results if options.inputs and result.passed and result.inputs < options.inputs]
    if short:
        print(f"fewer inputs than asked for: {', '.join(short)}")
    failed = sum(not result.passed for result in results)
    print(f"\n{sum(result.inputs for result in results):,} inputs")
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed or short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
