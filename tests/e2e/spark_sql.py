"""`python spark_sql.py SETTINGS`: a Spark session of its own process; one SQL statement per line in, one answer out.

SETTINGS is a JSON file with Spark's configuration. Statements and answers are JSON: a string in; `rows`, or `error`,
out. Binary values come as hexadecimal, decimals as text. The first line out is `"ready"`.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


def main(settings: Path) -> None:
    conf = (
        SparkConf()
        .setMaster("local[2]")
        .setAppName("tierberg-e2e")
        .setAll(list(json.loads(settings.read_text()).items()))
    )
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    say("ready")
    for line in sys.stdin:
        try:
            rows = session.sql(json.loads(line)).collect()
            say({"rows": [[plain(value) for value in row] for row in rows]})
        except Exception as error:  # noqa: BLE001 - what it says is the answer
            say({"error": str(error)})
    session.stop()


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
