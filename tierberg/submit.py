"""`spark-submit …/repartition/submit.py --all --config tierberg.yaml`: the command on a cluster of yours.

Master, memory, jars and executors are what `spark-submit` is told; the command adds the catalogs. The driver's Python
(`PYSPARK_PYTHON`) needs the package `tierberg`, executors need nothing of it: what they run is Spark's own.
"""

from __future__ import annotations

import typer

from tierberg.commands.repartition import repartition

if __name__ == "__main__":
    command = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    command.command()(repartition)
    command()
