"""Spark's Java as a job starts it: everybody on the machine can read its command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from repartition.spark.catalog import spark_catalog
from tierberg.stack.jars import spark_jars
from tierberg.stack.ports import LOOPBACK
from tierberg.stack.servers.spark_cluster import spark_home

pytestmark = pytest.mark.timeout(600)

SECRET = "hunter2-hunter2"
ODD = "=a: \\ # ! 'ü' \"😀\"\nb\t"
ASK = """
import json, os, sys
from pathlib import Path
from repartition.spark.session import spark_session

catalogs, given, keys = json.loads(Path(sys.argv[1]).read_text())
with spark_session(catalogs, given) as session:
    java = Path("/proc") / str(session._jvm.java.lang.ProcessHandle.current().pid())
    session.sql("CREATE NAMESPACE c.space")
    session.sql("CREATE TABLE c.space.numbers AS SELECT id FROM range(3)")
    conf = session.sparkContext.getConf()
    print(json.dumps({
        "rows": session.table("c.space.numbers").count(),
        "argv": (java / "cmdline").read_bytes().decode().split("\\0"),
        "environment": (java / "environ").read_bytes().decode(errors="replace"),
        "conf": {key: conf.get(key) for key in keys},
        "password": session.conf.get("spark.sql.catalog.c.jdbc.password"),
        "left": [str(path) for path in Path(os.environ["TMPDIR"]).rglob("spark.properties")],
        "arguments": os.environ.get("PYSPARK_SUBMIT_ARGS"),
    }))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("scratch", "conf", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.of.defaults 7\nspark.of.both 7\n")
    (tmp_path / "ask.py").write_text(ASK)
    return tmp_path


def asked(folder: Path, argv: list[str], given: dict[str, str]) -> dict[str, Any]:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/data/catalog.db", "warehouse": f"file://{folder}/data/w"}
    catalogs = {**spark_catalog("c", properties), "spark.sql.catalog.c.jdbc.password": SECRET}
    environment = {
        **os.environ,
        "TMPDIR": str(folder / "scratch"),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path.cwd()),
    }
    told = folder / "told.json"
    told.write_text(json.dumps([catalogs, given, [*given, "spark.of.defaults"]]))
    argv = [*argv, str(folder / "ask.py"), str(told)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 3
    assert found["password"] == SECRET
    assert not found["left"]
    assert found["arguments"] == os.environ.get("PYSPARK_SUBMIT_ARGS")
    assert {key: found["conf"][key] for key in given} == given
    assert not [word for word in found["argv"] if SECRET in word]
    assert SECRET not in found["environment"]
    return found


def jars() -> str:
    return ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar")))


def test_no_setting_is_in_a_command_line(folder: Path) -> None:
    given = {
        "spark.jars": jars(),
        "spark.driver.memory": "613m",
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.of.both": "8",
        "spark.odd": ODD,
    }
    found = asked(folder, [sys.executable], given)
    assert "-Xmx613m" in found["argv"], "what Java takes at its start only"
    assert "--conf" not in found["argv"]
    assert found["conf"]["spark.of.defaults"] == "7"


def test_the_same_under_spark_submit(folder: Path) -> None:
    """The catalogs come by the job, which `spark-submit` starts when Java runs already."""
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--conf", f"spark.jars={jars()}"]
    found = asked(folder, submit, {"spark.hadoop.fs.s3a.secret.key": SECRET})
    assert found["conf"]["spark.of.defaults"] == "7"
