"""Rows in the order that a projection's files want: together by partition, sorted within.

Iceberg asks Spark for the same by transforms, which Spark then works out anew in each comparison of its sort: with
`day(…)` that is a fifth of what a run costs. Here each transform is a column, worked out once per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from repartition.run.layout_check import is_floating
from repartition.run.target import quoted
from repartition.spark.session import configured
from rsm_bridge.config.layout_terms import SortTerm, partition_term, quoted_path, row_order
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.limits import MIB

_TERM: Final = "__tierberg_term_"
#: Rows between two tasks, in Spark's own format under lz4, take about so much more than in Parquet.
_SHUFFLED_PER_STORED: Final = 2
_ADVISORY: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
#: Rows come as they are to be written.
AS_GIVEN: Final = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "false"}


@contextmanager
def laid_out(session: Any, rows: Any, catalog: str, rule: ProjectionRule) -> Iterator[Any]:
    """The rows, for a write with :data:`AS_GIVEN` within the block.

    Args:
        session: Spark's. Its advised size of a task's input is that of the rule's files within the block.
        rows: a frame with the projection's columns.
        catalog: the projection's, in Spark: it has the transforms as functions.
        rule: has `partition_by` and `sort_by`.
    """
    from pyspark.sql import functions

    terms = [partition_term(text) for text in rule.partition_by]
    names = [f"{_TERM}{number}" for number in range(len(terms))]
    placed = rows
    for name, term in zip(names, terms, strict=True):
        placed = placed.withColumn(name, functions.expr(term.call(quoted(catalog))))
    placed = placed.hint("rebalance", *names)
    order = [functions.expr(f"`{name}`").asc() for name in names]
    # −0.0 and 0.0 are equal in a sort, and two partitions: by their texts each comes in one run.
    floating = [name for name, term in zip(names, terms, strict=True) if is_floating(rows.schema, term)]
    order = [*order, *(functions.expr(f"CAST(`{name}` AS STRING)").asc() for name in floating)]
    order += [_ordered(term) for term in row_order(rule.sort_by).terms]
    if order:
        placed = placed.sortWithinPartitions(*order)
    with configured(session, _ADVISORY, str(rule.target_file_mib * MIB * _SHUFFLED_PER_STORED)):
        yield placed.drop(*names)


def _ordered(term: SortTerm) -> Any:
    from pyspark.sql import functions

    column = functions.col(quoted_path(term.column))
    if term.descending:
        return column.desc_nulls_first() if term.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if term.nulls_first else column.asc_nulls_last()
