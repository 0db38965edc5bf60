"""What the plans of one commit say to readers, in the snapshot's summary.

| key | value |
|---|---|
| `tierberg.rewind.<partition>` | rows from this offset on were taken back; a copy of the table must do the same |
| `tierberg.gaps` | JSON `{"<partition>": [[first, last], …]}`: offsets never uploaded, jumped over; ends inclusive |
| `tierberg.lost` | same form: rows of transactions whose marker lies in a gap or on a dead branch; never published |
| `tierberg.repair.<partition>` | `first-last`: rows there, below the frontier, came late (`tierberg requeue`) |
| `tierberg.retention` | `table_retention` of the bridge: `follow-kafka`, `keep`, or seconds; commands say none |
| `tierberg.gaps-omitted`, `tierberg.lost-omitted` | how many ranges had no room |

All partitions' rewinds are named, for readers act on them; ranges only up to SUMMARY_RANGES_BYTES_MAX per key, because
twenty snapshots share one metadata.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from iceberg_catalog.limits import SUMMARY_RANGES_BYTES_MAX
from iceberg_catalog.plan.types import Plan

REWIND = "tierberg.rewind."
REPAIR = "tierberg.repair."
GAPS = "tierberg.gaps"
LOST = "tierberg.lost"
OMITTED = "-omitted"
RETENTION = "tierberg.retention"

Ranges = tuple[tuple[int, int], ...]


def plan_summary(plans: Mapping[int, Plan]) -> dict[str, str]:
    """Entries for the summary; `plans` by partition."""
    ordered = sorted(plans.items())
    summary = {f"{REWIND}{partition}": str(plan.rewind) for partition, plan in ordered if plan.rewind is not None}
    summary |= _ranges(GAPS, {partition: plan.gaps for partition, plan in ordered})
    return summary | _ranges(LOST, {partition: joined(plan.lost) for partition, plan in ordered})


def joined(ranges: Ranges) -> Ranges:
    """Ascending ranges [first, last], those that touch made one."""
    result: list[tuple[int, int]] = []
    for first, last in ranges:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def _ranges(key: str, found: Mapping[int, Ranges]) -> dict[str, str]:
    """The key and, if ranges had to be left out, how many. Nothing when there are none."""
    said: dict[str, list[list[int]]] = {}
    size, omitted = len("{}"), 0
    for partition, ranges in found.items():
        for first, last in ranges:
            # Brackets, colon and commas count for every range, so the text is never longer than this.
            size += len(f'"{partition}":[[{first},{last}]],')
            if size <= SUMMARY_RANGES_BYTES_MAX:
                said.setdefault(str(partition), []).append([first, last])
            else:
                omitted += 1
    summary = {key: json.dumps(said, separators=(",", ":"))} if said else {}
    return summary | ({f"{key}{OMITTED}": str(omitted)} if omitted else {})
