"""A catalog that takes connections and never answers: Java's client gives it up too."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from iceberg_catalog.connect.rest import Timeouts
from repartition.errors import first_line
from repartition.spark.catalog import spark_catalog
from tierberg.stack.ports import LOOPBACK


@pytest.mark.timeout(120)
def test_a_silent_catalog_does_not_keep_a_job(spark: Any) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        properties = {"type": "rest", "uri": f"http://{LOOPBACK}:{silent.getsockname()[1]}"}
        for key, value in spark_catalog("silent", properties, Timeouts(1_000, 1_500)).items():
            spark.conf.set(key, value)
        began = time.monotonic()
        with pytest.raises(Exception, match="time") as raised:
            spark.sql("SHOW NAMESPACES IN silent").collect()
        assert time.monotonic() - began < 60, first_line(raised.value)
