"""The demo's projection: what is declared, what is asked, and what is said when its commands fail."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from repartition.advise.picture import _NAME_CHARS
from repartition.advise.queries import parse_queries
from rsm_bridge.config.layout_terms import partition_term, sort_term
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.projections.hold import declared_projections
from tierberg.demo import projection as demo_projection
from tierberg.demo import servers as demo_servers
from tierberg.demo.checks import DemoSummary
from tierberg.demo.columns import COLUMNS
from tierberg.demo.errors import DemoError
from tierberg.demo.projection import compare_layouts, make_projection, own_lines
from tierberg.demo.queries import ONE_DAY, QUERIES, queries_file
from tierberg.demo.servers import PROJECTION, TOPIC
from tierberg.stack.process import ServerProcess


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of the demo's servers; Spark's jars are not fetched for that."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("b.jar", "a.jar", "a.txt"):
        (jars / name).touch()
    monkeypatch.setattr(demo_servers, "spark_jars", lambda: jars)
    path = tmp_path / "bridge" / "tierberg.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(demo_servers._settings(tmp_path, "http://127.0.0.1:1/apis")))
    return path


def servers(folder: Path) -> Any:
    return SimpleNamespace(bridge=SimpleNamespace(folder=folder / "bridge"))


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def summary() -> DemoSummary:
    return DemoSummary(console=console(), verbose=True)


def test_the_bridge_is_told_of_the_projection(config: Path) -> None:
    settings = load_settings(config, {})
    (projection,) = declared_projections(settings, TOPIC, TOPIC)
    assert projection.table == PROJECTION
    named = {partition_term(text).column for text in projection.rule.partition_by}
    named |= {sort_term(text).column for text in projection.rule.sort_by}
    assert named <= COLUMNS.keys()
    jars = settings.repartition.spark["spark.jars"].get_secret_value().split(",")
    assert [Path(jar).name for jar in jars] == ["a.jar", "b.jar"]


def test_the_projection_is_laid_out_for_what_is_asked() -> None:
    (one_day,) = (query for query in QUERIES if query.name == ONE_DAY)
    for term in demo_servers._PROJECTION_RULE["partition_by"]:
        assert f"{partition_term(term).column} = " in one_day.spark


def test_advise_is_asked_what_the_engines_are() -> None:
    parsed, asked = parse_queries(queries_file()), [query for query in QUERIES if query.of_values]
    assert [query.name for query in parsed] == [query.name for query in asked]
    assert [query.on("t").split() for query in parsed] == [query.spark.format(table="t").split() for query in asked]
    assert ONE_DAY in {query.name for query in asked}
    assert all(len(query.name) <= _NAME_CHARS for query in parsed), "the picture would cut it"


LINE = f"{PROJECTION}: write"


def test_lines_of_spark_are_left_out() -> None:
    output = f"26/11/22 WARN SparkConf: {PROJECTION}: no\n{LINE}\n\ttierberg: no\ntierberg: no table\n{LINE}"
    assert own_lines(output) == [LINE, "tierberg: no table"]
    assert own_lines(f"{output}\n") == [LINE, "tierberg: no table", LINE]


@given(st.lists(st.sampled_from([LINE, "tierberg: é", "WARN x", ""]), max_size=8), st.integers(0, 400))
def test_what_was_shown_stays_as_more_comes(lines: list[str], cut: int) -> None:
    whole = "".join(f"{line}\n" for line in lines)
    before, after = own_lines(whole[:cut]), own_lines(whole)
    assert after[: len(before)] == before
    assert after == [line for line in lines if line.startswith((PROJECTION, "tierberg"))]


def test_a_job_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "bridge").mkdir()
    out = console()
    with pytest.raises(DemoError, match=r"(?s)ended with code 2; .*tierberg\.yaml") as raised:
        make_projection(servers(tmp_path), tmp_path, DemoSummary(console=out, verbose=True))
    assert str(tmp_path / "spark" / "repartition.log") in str(raised.value)
    assert isinstance(out.file, io.StringIO)
    assert "tierberg: " in out.file.getvalue()


def test_a_job_is_ended_with_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[ServerProcess] = []

    class Noted(ServerProcess):
        def start(self) -> None:
            super().start()
            jobs.append(self)
            assert self.alive

    def interrupted(what: str, probe: Any, timeout_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_projection, "ServerProcess", Noted)
    monkeypatch.setattr(demo_projection, "wait_for", interrupted)
    (tmp_path / "bridge").mkdir()
    with pytest.raises(KeyboardInterrupt):
        make_projection(servers(tmp_path), tmp_path, summary())
    assert [job.alive for job in jobs] == [False]


def test_a_report_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "bridge").mkdir()
    with pytest.raises(DemoError, match="`tierberg advise` failed"):
        compare_layouts(servers(tmp_path), tmp_path, summary())
