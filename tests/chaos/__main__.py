"""`python -m tests.chaos --minutes 10`: break everything at random for a while, then look whether anything is lost."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.chaos import limits
from tests.chaos.chaos_run import ChaosRun, Options
from tests.chaos.plan import known
from tests.chaos.report import lines


def main() -> int:
    """0: nothing is wrong, and the folder is gone. 1: something is, and the folder is named."""
    # As Ctrl-C: servers are stopped before we end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = _arguments()
    names = _names(given.faults)
    bridges = given.bridges or max(2, given.brokers)
    given.folder.mkdir(parents=True, exist_ok=True)
    folder = given.folder.resolve() / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{given.seed}"
    folder.mkdir()
    said = folder / "chaos.log"
    begun = time.monotonic()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - begun:7.1f} s] {text}"
        print(line, flush=True)
        with said.open("a") as out:
            out.write(line + "\n")

    say(f"seed {given.seed}, {given.brokers} brokers, {bridges} bridges, {given.minutes} minutes, in {folder}")
    say(f"faults: {' '.join(sorted(names))}")
    options = Options(given.minutes, given.seed, given.brokers, bridges, names, given.rate, folder)
    result = ChaosRun(options, say).run()
    for line in lines(result):
        print(line, flush=True)
        with said.open("a") as out:
            out.write(line + "\n")
    failed = any(not verdict.passed for verdict in result.verdicts)
    if failed or given.keep:
        ends = {str(number): end for number, end in result.ledger.ends.items()}
        (folder / "transactions.json").write_text(json.dumps(ends))
        print(f"logs, stores and links of the brokers' files are kept in {folder}; seed {given.seed}", flush=True)
    else:
        shutil.rmtree(folder)
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--bridges", type=int, default=0, help="default: 2, and 3 with three brokers")
    parser.add_argument("--rate", type=float, default=limits.RATE, help="records a second")
    parser.add_argument("--faults", default="", help="names with commas between; with - before each: all but these")
    parser.add_argument("--folder", type=Path, default=Path("chaos-data"))
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that passed")
    return parser.parse_args()


def _names(given: str) -> set[str]:
    """The faults that were asked for."""
    words = [word for word in given.replace(",", " ").split() if word]
    unknown = {word.removeprefix("-") for word in words} - set(known())
    if unknown:
        raise SystemExit(f"no faults {sorted(unknown)}; there are: {' '.join(known())}")
    without = {word.removeprefix("-") for word in words if word.startswith("-")}
    only = {word for word in words if not word.startswith("-")}
    return (only or set(known())) - without


if __name__ == "__main__":
    sys.exit(main())
