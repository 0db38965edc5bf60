"""One Spark session for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repartition.spark.session import spark_session
from tierberg.stack.jars import spark_jars


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's client leaves the sockets of `collect` to the garbage collector.

    A test that is ended amid a call to Spark leaves the answer to the next one: all that follow would fail of it.
    So the end comes late; a busy machine is slow, not wrong.
    """
    for item in items:
        if item.path.parent == Path(__file__).parent:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    given = {
        "spark.jars": ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar"))),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    with spark_session({}, given) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session
