"""What runs use of Spark and Iceberg beneath their public Python and SQL.

Beside it session.py starts and watches Java, and advise/spark_plan.py reads plans. Tried with Spark 4.1 and Iceberg
1.12. Each entry says what there is no public way for.

| used | for |
|---|---|
| `TryEval`, `ExpressionUtils.column`, the session's parser | null where any expression raises; SQL has `try_add` … |
| `Spark3Util.loadIcebergTable` | Iceberg's own table of a name |
| `Table.updateSchema().unionByNameWith` | columns that come or get wider, nested ones too, in one commit |
| `QueryExecution.analyzed().references()` | which columns an expression reads |
| `QueryExecution.analyzed()`, `SubqueryExpression` | whether an expression reads other rows |
| `Observation.future`, `.getRow` | a figure of a write, if it was told: Python waits for one that never comes |
| `Table.manageSnapshots()` | a branch becomes `main`, and its tag moves, in one commit; SQL makes one for each |
| `QueryExecution.optimizedPlan().stats()` | how large a persisted frame is |
| `SparkSchemaUtil.convert`, `StructType.asNullable` | Iceberg's schema of a frame, without fields that must be given |
"""

from __future__ import annotations

import time
from typing import Any, Final

_TOLD_WITHIN_S: Final = 1.0
#: Spark makes a projection, a window and one more projection of one expression with a window function.
_WORKED_OUT_NODES: Final = 4
_OF_SEVERAL_ROWS: Final = frozenset({"Window", "Aggregate"})


def iceberg_table(session: Any, table: str) -> Any:
    """Iceberg's table of a name, quoted, the catalog's first."""
    return session._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)


def union_columns(session: Any, table: str, frame: Any) -> None:
    """Adds the columns that only `frame` has, and widens what must be: int to long, float to double, decimals."""
    wanted = session._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(nullable_schema(frame))
    iceberg_table(session, table).updateSchema().unionByNameWith(wanted).commit()


def nullable_schema(frame: Any) -> Any:
    """Java's schema of the frame. A field that is never null today may be one that nobody gives tomorrow."""
    return frame._jdf.schema().asNullable()


def tried(session: Any, text: str) -> Any:
    """A column: the SQL expression, or null where it raises."""
    from pyspark.sql.classic.column import Column

    jvm = session._jvm
    parsed = session._jsparkSession.sessionState().sqlParser().parseExpression(text)
    made = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(made))


def columns_read(frame: Any, text: str) -> frozenset[str]:
    """Names of the columns of the frame, at its top, that a SQL expression reads."""
    found = frame.selectExpr(f"struct({text})")._jdf.queryExecution().analyzed().references().iterator()
    names = set()
    while found.hasNext():
        names.add(str(found.next().name()))
    return frozenset(names)


def stands_alone(session: Any, frame: Any) -> bool:
    """Whether each row of what was selected last is made of one row: no window functions, aggregates, subqueries."""
    subqueries = session._jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression
    plan = frame._jdf.queryExecution().analyzed()
    for _ in range(_WORKED_OUT_NODES):  # of the selection; what it is made from comes behind
        if plan.nodeName() in _OF_SEVERAL_ROWS:
            return False
        found = plan.expressions().iterator()
        while found.hasNext():
            if subqueries.hasSubquery(found.next()):
                return False
        children = plan.children()
        if children.size() != 1:
            break
        plan = children.head()
    return True


def observed(observation: Any) -> int | None:
    """The one figure of an observation; None if no action tells it: Python's own way would wait for ever then."""
    deadline = time.monotonic() + _TOLD_WITHIN_S  # by the bus of events, behind the action
    while not observation._jo.future().isCompleted():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    row = observation._jo.getRow()
    return int(row.getLong(0)) if row.length() else None  # of a plan that was found to be empty nothing is observed


def worked_out_bytes(frame: Any) -> int:
    """Works a persisted frame out, and says how many bytes it takes."""
    frame.count()
    plan = frame.select("*")._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def branch_to_main(session: Any, table: str, branch: str, tag: str, says: str) -> None:
    """Makes a branch `main`, and puts the tag on its newest snapshot that has a property; the branch goes. One commit.

    Args:
        session: Spark's.
        table: quoted.
        branch: begun at `main`, or where there was none.
        tag: moved there from where it is; left where it is if no snapshot of the branch has the property.
        says: the property's name.

    Raises:
        Py4JJavaError: the catalog is away; `main` is no ancestor of the branch any more; the branch is gone.
    """
    iceberg = iceberg_table(session, table)
    snapshot = iceberg.snapshot(branch)
    while snapshot is not None and says not in snapshot.summary():
        parent = snapshot.parentId()
        snapshot = None if parent is None else iceberg.snapshot(parent)
    changed = iceberg.manageSnapshots().fastForwardBranch("main", branch)
    if snapshot is not None:
        tagged = iceberg.refs().containsKey(tag)
        changed = (changed.replaceTag if tagged else changed.createTag)(tag, snapshot.snapshotId())
    changed.removeBranch(branch).commit()
