"""What a run prints at its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tests.chaos.chaos_run import Result
from tests.chaos.verdicts import Verdict


def lines(result: Result) -> list[str]:
    """The tables, the failed verdicts with examples, and last `N passed, N failed`."""
    ledger = result.ledger
    produced = {kind: (ledger.produced[kind], ledger.counts[kind]) for kind in sorted(ledger.counts | ledger.produced)}
    found = ["", f"{'records':44}{'sent':>10}{'acked':>10}"]
    found += [f"{kind:44}{sent:>10}{acked:>10}" for kind, (sent, acked) in produced.items()]
    found.append(f"{'all':44}{ledger.produced.total():>10}{ledger.total():>10}")
    found += ["", *_transactions(ledger.ends), ""]
    found += [f"{'faults':44}{'done':>10}{'not had':>10}"]
    names = sorted(result.faults | result.passed_over)
    found += [f"{name:44}{result.faults[name]:>10}{result.passed_over[name]:>10}" for name in names]
    found.append(f"{'all':44}{result.faults.total():>10}{result.passed_over.total():>10}")
    found += ["", f"{'reads beside the faults':44}"]
    found += [f"  {what:42}{count:>10}" for what, count in sorted(result.reads.items())]
    found += ["", f"{'what producers were told':44}"]
    found += [f"  {count:>6} {what}" for what, count in _alike(result.troubles).most_common(12)]
    found += ["", *_checks(result.verdicts)]
    failed = [verdict for verdict in result.verdicts if not verdict.passed]
    for verdict in failed:
        found += [f"FAILED {verdict.line()}", *(f"    {example}" for example in verdict.examples)]
    found += ["", f"{len(result.verdicts) - len(failed)} passed, {len(failed)} failed in {result.seconds:.0f} s"]
    return found


def _alike(troubles: Counter[str]) -> Counter[str]:
    """Those that differ by places and numbers only, as one."""
    found: Counter[str] = Counter()
    for text, count in troubles.items():
        found[re.sub(r"[a-z-]*\d[\d:]*", "…", text)] += count
    return found


def _transactions(ends: Mapping[int, str]) -> list[str]:
    counts = Counter(ends.values())
    return [f"{'transactions ' + end:44}{count:>10}" for end, count in sorted(counts.items())]


def _checks(verdicts: list[Verdict]) -> list[str]:
    """One line for each check."""
    found = [f"{'checks':44}{'looked at':>12}{'passed':>8}{'failed':>8}  what"]
    for check in dict.fromkeys(verdict.check for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.check == check]
        wrong: Counter[str] = sum((verdict.wrong for verdict in mine), Counter())
        counts: Counter[str] = sum((verdict.told for verdict in mine), Counter())
        passed = sum(verdict.passed for verdict in mine)
        told = ", ".join(f"{count} {kind}" for kind, count in (counts + wrong).items())
        looked_at = sum(verdict.looked_at for verdict in mine)
        found.append(f"{check:44}{looked_at:>12}{passed:>8}{len(mine) - passed:>8}  {told}")
    return [*found, ""]
