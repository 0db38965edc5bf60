"""`python spark_reader.py SETTINGS ANSWER`: a Spark session of its own process reads one table and tries to clean it.

SETTINGS is JSON: `conf` for Spark, `catalog`, `table`. ANSWER gets JSON: `rows`, in the order of partition and offset,
and `refused`: what each clean-up procedure said, empty when it ran.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession

ROWS = """
SELECT _kafka_partition, _kafka_offset, unix_millis(_kafka_timestamp), hex(_kafka_key), hex(_kafka_value),
       _kafka_value_size, transform(_kafka_headers, h -> struct(h.key, hex(h.value)))
FROM {table} ORDER BY 1, 2
"""
CLEAN_UPS = {
    "expire_snapshots": "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1",
    "remove_orphan_files": "older_than => TIMESTAMP '2100-01-01 00:00:00'",
}


def main(settings: dict[str, Any], answer: Path) -> None:
    conf = SparkConf().setMaster("local[2]").setAppName("tierberg-e2e").setAll(list(settings["conf"].items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    catalog, table = settings["catalog"], settings["table"]
    refused = {}
    for procedure, arguments in CLEAN_UPS.items():
        try:
            session.sql(f"CALL {catalog}.system.{procedure}(table => '{table}', {arguments})").collect()
            refused[procedure] = ""
        except Exception as error:  # noqa: BLE001 - what it says is the answer
            refused[procedure] = str(error)
    rows = [
        [*row[:6], None if row[6] is None else [[name, value] for name, value in row[6]]]
        for row in session.sql(ROWS.format(table=f"{catalog}.{table}")).collect()
    ]
    answer.write_text(json.dumps({"rows": rows, "refused": refused}))
    session.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
