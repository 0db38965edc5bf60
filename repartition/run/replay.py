"""Dead letters made anew under the rule as it is now: which records to read for them, and which changes count.

A letter of an append is a row more. Of an upsert it may have been followed by later changes of its key, and what those
said of a row that was not there is recorded nowhere: all changes of these keys since the letter are applied once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_catalog.plan.types import LiveFile, PartState
from repartition.changes.select import IDENTITY, identity
from repartition.run.frontier import Frontier
from repartition.run.read_plan import Range, first_live
from rsm_bridge.config.projections import ProjectionRule


def letter_ranges(
    firsts: Mapping[int, int], frontier: Frontier, states: Mapping[int, PartState], files: tuple[LiveFile, ...]
) -> tuple[Range, ...]:
    """What to read, by partition: from the first letter whose record the topic's table still has, to the frontier.

    Args:
        firsts: offset of the first letter, by partition.
        frontier: of the projection.
        states: the partitions of the topic's table.
        files: that it has.
    """
    read = {number: position.next for number, position in frontier.positions.items() if number in states}
    starts = {number: first_live(number, first, files) for number, first in firsts.items()}
    found = (Range(number, start, read.get(number, 0)) for number, start in sorted(starts.items()))
    return tuple(item for item in found if item.start < item.end)


def of_letters(rows: Any, letters: Any, rule: ProjectionRule, there: Any) -> Any:
    """Those of the changes that letters ask for.

    Args:
        rows: the changes of everything that was read, as `upsert` or `append` takes them.
        letters: partition and offset of the letters.
        rule: the projection's.
        there: rows of an append projection, which may have some already: a replay that died leaves its letters.
    """
    named = rows.join(letters, list(IDENTITY), "semi")
    if rule.mode == "append":
        return named.join(there.select(*identity(rule)), list(identity(rule)), "anti")
    keys = named.select(*(f"`{name}`" for name in rule.key)).distinct()
    return rows.join(keys, list(rule.key), "semi")
