"""What of a rule its table keeps for good: the key, and that a format version never goes back."""

from __future__ import annotations

import json
from typing import Final

from pyiceberg.table import Table

from repartition.errors import RepartitionError
from rsm_bridge.copy_rules import CopyRule

COPY_KEY: Final = "tierberg.copy.key"  # of upsert: the columns' names, sorted, as a JSON list


def rule_stamp(rule: CopyRule) -> dict[str, str]:
    """Table properties that say of which columns there is one row each; none where every record has its own."""
    return {COPY_KEY: json.dumps(sorted(rule.key), ensure_ascii=False)} if rule.key else {}


def refuse_other_rule(table: Table, rule: CopyRule) -> None:
    """Does nothing where the table can be brought to the rule.

    Raises:
        RepartitionError: `bad_rule` if its rows are one per other columns than the rule's `key`, or its format version
            is above the rule's.
    """
    name, anew = ".".join(table.name()), "choose another `table`, or drop this one to have it filled anew"
    found, wanted = table.properties.get(COPY_KEY), rule_stamp(rule).get(COPY_KEY)
    if found != wanted:
        said = f"table {name} has one row per {found or 'unknown key'}, and the rule's `key` is now {wanted or 'none'}"
        raise RepartitionError("bad_rule", f"{said}. Set it back, {anew}")
    if table.format_version > rule.format_version:
        version = table.format_version
        said = f"table {name} has format version {version}, above the rule's {rule.format_version}, and cannot go back"
        raise RepartitionError("bad_rule", f"{said}. Set `format_version: {version}`, {anew}")
