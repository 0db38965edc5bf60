"""docs/running-projections.md: its jars are those that tests run with, its commands have options that there are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from rsm_bridge.config.settings import Settings
from tierberg.cli import app
from tierberg.stack.servers.spark_cluster import spark_home

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "running-projections.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
YAML = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def submits() -> list[list[str]]:
    """Every `spark-submit` of the page, as words."""
    (pod,) = YAML[1]["spec"]["template"]["spec"]["containers"]
    lines = "\n".join([*SHELL, *pod["args"]]).replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("exec ")) for line in lines if "spark-submit --master" in line]


@pytest.mark.parametrize("pom", ["spark-pom.xml", "spark-s3-pom.xml"])
def test_jars_are_those_of_the_tests(pom: str) -> None:
    text = (ROOT / "tierberg" / "stack" / pom).read_text(encoding="utf-8").split("<dependencies>")[1]
    parts = (r"<groupId>([^*<]*)<", r"<artifactId>([^*<]*)<", r"<version>([^<]*)<")
    found = list(zip(*(re.findall(part, text) for part in parts), strict=True))
    assert found
    for jar in found:
        assert f"| `{':'.join(jar)}` |" in TEXT
    listed = set(re.findall(r"\| `(\S+:\S+:\S+)` \|", TEXT))
    named = re.findall(r"(?:PACKAGES=|packages: )(\S+:\S+)", TEXT)
    assert len(named) == 3
    assert {jar for names in named for jar in names.split(",")} <= listed


def test_the_settings_of_the_page_are_settings() -> None:
    assert "spark.driver.memory" in Settings.model_validate(YAML[0]).repartition.spark


def test_the_commands_have_options_that_there_are() -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    argv = [str(spark_home() / "bin" / "spark-submit"), "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, check=True)
    known = set(re.findall(r"--[a-z-]+", done.stdout + done.stderr))
    assert [words[2].partition(":")[0] for words in submits()] == ["spark", "yarn", "k8s"]
    for words in submits():
        at = words.index("$SUBMIT")
        assert {word for word in words[:at] if word.startswith("--")} <= known
        with pytest.raises(SystemExit) as ended:
            app(["repartition", *words[at + 1 :], "--help"])
        assert ended.value.code == 0


def test_what_is_configured_are_names_that_spark_has() -> None:
    names = {
        words[at + 1].partition("=")[0] for words in submits() for at, word in enumerate(words) if word == "--conf"
    }
    assert len(names) == 5
    for kind in ("core", "kubernetes"):
        (jar,) = (spark_home() / "jars").glob(f"spark-{kind}_2.13-4.1.*.jar")
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                data = archive.read(entry) if "Config" in entry or "package$" in entry else b""
                names -= {name for name in names if name.encode() in data}
    assert not names


def test_the_way_to_the_script_leads_to_it() -> None:
    for block in (SHELL[1], YAML[1]["spec"]["template"]["spec"]["containers"][0]["args"][0]):
        (line,) = re.findall(r"\$PYSPARK_PYTHON -c '(.*)'\)", block)
        done = subprocess.run(
            [sys.executable, "-c", line], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
        )
        assert Path(done.stdout.strip()).read_text(encoding="utf-8").startswith('"""`spark-submit')
