"""`python -m benchmarks`: run measures, print their table, draw them, check that none is missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.measures import Measure, load_measures, select
from benchmarks.plots import write_plots
from benchmarks.results import missing, read_results
from benchmarks.run import run, say
from benchmarks.table import markdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0; 1 when a measure has no result; 2 when a name is unknown. A missed target is no error."""
    options = _parser().parse_args(arguments)
    measures = load_measures()
    if options.command == "run":
        try:
            chosen = select(measures, options.only or [])
        except ValueError as error:
            say(str(error))
            return 2
        return _run(chosen, quick=options.quick)
    results = read_results()
    if options.command == "table":
        print(markdown(measures.values(), results), end="")
        return 0
    if options.command == "plots":
        for path in write_plots(results):
            say(str(path))
        return 0
    return _report_missing(missing(measures, results))


def _run(measures: dict[str, Measure], *, quick: bool) -> int:
    absent = run(measures, quick=quick)
    found = {name: result for name, result in read_results().items() if name in measures and name not in absent}
    print(markdown(measures.values(), found), end="")
    return _report_missing(absent)


def _report_missing(absent: Sequence[str]) -> int:
    for name in absent:
        say(f"missing: {name}")
    return 1 if absent else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="measure, write results/<id>.json, print the table")
    runner.add_argument("--only", action="append", metavar="ID", help="a measure or a suite; may be repeated")
    runner.add_argument("--quick", action="store_true", help="small sizes and few rounds: figures are rough")
    commands.add_parser("table", help="print the table of the stored results")
    commands.add_parser("plots", help="draw docs/plots/*.svg from the stored results")
    commands.add_parser("check", help="fail when a measure of measures.toml has no stored result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
