"""What random histories do, with which faults, and how often it has run."""

from __future__ import annotations

from collections import Counter

COPY = ("", "crash before the index", "reply lost")
DELETE = ("", "crash before the tombstone", "reply lost")
PUBLISH = ("", "crash after listing", "crash after files", "refused", "reply lost", "lands late", "conflict")
MERGE = ("", "file written", "pointers swapped")
CRASH = ("", "crash in between")
FOREIGN = ("rewrite", "insert")
REQUEUE = ("", "crash before the index")
REPAIR = ("", "crash before the swap")
TRUNCATION = ("with truncation", "without truncation")
OVERLAP = ("same offsets, new id", "superset", "subset", "partial overlap")

#: How often each (action, fault or kind) has run, over all machines of this process.
RAN: Counter[tuple[str, str]] = Counter()
#: Steps of Hypothesis, after each of which I1 to I3 were checked.
STEPS: Counter[str] = Counter()
ACTIONS: set[tuple[str, str]] = {
    *((name, "") for name in ("write", "transaction", "commit", "abort", "marker without a transaction", "roll")),
    *((name, "") for name in ("replicate", "replicate with truncation", "withdraw", "log start")),
    *(("elect", kind) for kind in TRUNCATION),
    *(("copy", kind) for kind in OVERLAP),
    *(("transaction across segments", end) for end in ("commit", "abort")),
    *(("requeue", fault) for fault in REQUEUE),
    *(("repair", fault) for fault in REPAIR),
    *((name, "") for name in ("delete records", "slow listing", "slow publish", "late landing", "settle", "time")),
    *(("copy", fault) for fault in COPY),
    ("copy verbatim", ""),
    *(("peek", end) for end in ("commit", "abort")),
    ("end twice", ""),
    *(("delete", fault) for fault in DELETE),
    *(("delete topic", fault) for fault in CRASH),
    *(("publish", fault) for fault in PUBLISH),
    *(("reclaim", fault) for fault in CRASH),
    *(("merge", fault) for fault in MERGE),
    *(("foreign", fault) for fault in FOREIGN),
    *(("read", kind) for kind in ("", "again")),
    *(("wait", kind) for kind in ("in time", "too late")),
}


def report() -> str:
    lines = [f"{'action':30} {'fault or kind':28} times"]
    lines += [f"{action:30} {fault:28} {RAN[action, fault]:5}" for action, fault in sorted(ACTIONS | set(RAN))]
    return "\n".join([*lines, f"{STEPS['all']} steps, {sum(RAN.values())} of these"])
