"""The MERGE of an upsert, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from converter import columns
from repartition.changes import DELETED
from rsm_bridge.copy_rules import KeyOrder

#: How the error for a key that is met in another partition begins.
KEY_MOVED: Final = "key_order is partition, and this key is in several partitions"
_LATER: Final = {
    "partition": f"s.{columns.OFFSET} > t.{columns.OFFSET}",
    "timestamp": (
        f"(coalesce(s.{columns.TIMESTAMP}, timestamp'0001-01-01'), s.{columns.PARTITION}, s.{columns.OFFSET}) > "
        f"(coalesce(t.{columns.TIMESTAMP}, timestamp'0001-01-01'), t.{columns.PARTITION}, t.{columns.OFFSET})"
    ),
}


def merge_statement(
    target: str, source: str, key: Sequence[str], names: Sequence[str], order: KeyOrder, *, insert: bool
) -> str:
    """Applies the latest change of each key.

    Every clause asks for a later record, so a change that comes again does nothing.

    Args:
        target: the table, or a branch of it, quoted.
        source: a view with the table's columns and DELETED, at most one row per key, no key null.
        key: columns of the key.
        names: all columns of the table: one that is not assigned would keep what an older record said.
        order: which of two records is later.
        insert: keys that the table has not get a row; False: nothing happens to them.
    """
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in key)
    given = {name: f"s.`{name}`" for name in names}
    clauses = [
        f"WHEN MATCHED AND {_LATER[order]} AND s.`{DELETED}` THEN DELETE",
        f"WHEN MATCHED AND {_LATER[order]} THEN UPDATE SET {_assigned(given)}",
    ]
    if insert:
        fresh = f"INSERT ({_listed(names)}) VALUES ({_listed(names, 's.')})"
        clauses.append(f"WHEN NOT MATCHED AND NOT s.`{DELETED}` THEN {fresh}")
    if order == "partition":
        refused = f"CAST(raise_error(concat('{KEY_MOVED}: ', to_json(struct({_listed(key, 's.')})))) AS BIGINT)"
        met = f"WHEN MATCHED AND t.{columns.PARTITION} <> s.{columns.PARTITION}"
        # Every column is assigned, so that of the table's rows no other column has to be read.
        clauses.insert(0, f"{met} THEN UPDATE SET {_assigned({**given, columns.OFFSET: refused})}")
    return f"MERGE INTO {target} t USING {source} s ON {on}\n" + "\n".join(clauses)


def _assigned(values: Mapping[str, str]) -> str:
    return ", ".join(f"t.`{name}` = {value}" for name, value in values.items())


def _listed(names: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}`{name}`" for name in names)
