"""Result files say what the issue asks for, and nothing is hidden."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from benchmarks import run as runner
from benchmarks.__main__ import main
from benchmarks.measures import Measure, Target
from benchmarks.results import Case, Cases, missing, read_results, shortfall, summarise, write_result
from benchmarks.run import Plan
from benchmarks.table import markdown


def measure(
    name: str = "m", direction: Literal["lower", "higher"] = "lower", target: Target | None = None, suite: str = "s"
) -> Measure:
    return Measure(name, f"Title of {name}", "ms", direction, "the floor", target, ("flights",), suite)


def test_a_result_has_the_agreed_keys_and_the_worst_case() -> None:
    cases = [Case("a", 1.0, 2.0), Case("b", 3.0, 2.0, runs=[2.9, 3.0, 3.1], extra={"mb_per_s": 7.0})]
    result = summarise(measure(target=Target(times_floor=1.6)), cases, quick=False)
    assert {key: result[key] for key in ("measure", "unit", "value", "floor", "target", "met", "worst_case")} == {
        "measure": "m",
        "unit": "ms",
        "value": 3.0,
        "floor": 2.0,
        "target": 3.2,
        "met": True,
        "worst_case": "b",
    }
    cases_written = result["cases"]
    assert isinstance(cases_written, list)
    assert cases_written[1] == {
        "case": "b",
        "value": 3.0,
        "floor": 2.0,
        "target": 3.2,
        "met": True,
        "runs": [2.9, 3.0, 3.1],
        "mb_per_s": 7.0,
    }
    assert {"machine", "date", "versions", "quick", "load_average"} <= set(result)


def test_one_missed_case_misses_the_measure() -> None:
    cases = [Case("a", 1.0), Case("b", 3.0), Case("c", 2.0)]
    result = summarise(measure(target=Target(value=2.5)), cases, quick=False)
    assert result["met"] is False
    assert result["worst_case"] == "b"
    assert shortfall(result) == pytest.approx(0.2)


def test_a_rate_that_is_too_low_is_missed() -> None:
    cases = [Case("a", 40.0, 100.0), Case("b", 60.0, 100.0)]
    result = summarise(measure(direction="higher", target=Target(times_floor=0.5)), cases, quick=False)
    assert (result["met"], result["worst_case"]) == (False, "a")
    assert shortfall(result) == pytest.approx(0.2)


def test_without_a_target_nothing_is_met_or_missed() -> None:
    result = summarise(measure(), [Case("a", 1.0), Case("b", 2.0)], quick=True)
    assert (result["met"], result["target"], result["value"], shortfall(result)) == (None, None, 2.0, None)
    assert result["quick"] is True


def test_a_met_target_has_no_shortfall() -> None:
    result = summarise(measure(target=Target(value=5.0)), [Case("a", 1.0)], quick=False)
    assert shortfall(result) is None


def test_no_case_is_no_result() -> None:
    with pytest.raises(ValueError, match="no case"):
        summarise(measure(), [], quick=False)


def test_files_round_trip_and_absent_ids_are_found(tmp_path: Path) -> None:
    write_result(summarise(measure("one"), [Case("a", 1.23456789)], quick=False), tmp_path)
    found = read_results(tmp_path)
    assert found["one"]["value"] == 1.2346
    assert json.loads((tmp_path / "one.json").read_text()) == found["one"]
    assert missing({"one": measure("one"), "two": measure("two")}, found) == ["two"]


def test_the_table_shows_misses_and_absences() -> None:
    results = {
        "good": summarise(measure("good", target=Target(value=5.0)), [Case("a", 1.0, 0.5)], quick=False),
        "bad": summarise(measure("bad", target=Target(value=5.0)), [Case("b", 6.0)], quick=True),
        "plain": summarise(measure("plain"), [Case("c", 123456.0)], quick=False),
    }
    lines = markdown([measure(name) for name in ("good", "bad", "plain", "absent")], results).splitlines()
    assert lines[2] == "| Title of good | 1 ms | 0.5 | ≤ 5 | ✓ | a |"
    assert lines[3] == "| Title of bad | 6 ms | – | ≤ 5 | ✗ by 20% | b |"
    assert lines[4] == "| Title of plain | 123,456 ms | – | – | – | c |"
    assert lines[5] == "| Title of absent | not measured | | | | |"
    assert "quick runs" in lines[-1]


def suites(monkeypatch: pytest.MonkeyPatch, **modules: SimpleNamespace) -> None:
    monkeypatch.setattr(runner, "import_module", lambda name: modules[name.rsplit(".", 1)[1]])


def test_a_suite_that_fails_does_not_stop_the_others_and_its_ids_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(plan: Plan) -> Cases:
        raise RuntimeError("no broker today")

    suites(
        monkeypatch,
        broken=SimpleNamespace(measure=breaks),
        whole=SimpleNamespace(measure=lambda plan: {"b": [Case("x", 1.0)], "other": [Case("y", 1.0)]}),
        partial=SimpleNamespace(measure=lambda plan: {"c": []}),
    )
    measures = {
        "a": measure("a", suite="broken"),
        "b": measure("b", suite="whole"),
        "c": measure("c", suite="partial"),
        "d": measure("d", suite="partial"),
    }
    assert runner.run(measures, quick=True, directory=tmp_path) == ["a", "c", "d"]
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]
    assert "no broker today" in capsys.readouterr().err


def test_a_suite_runs_once_for_all_its_measures_and_its_folder_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plans: list[Plan] = []

    def one(plan: Plan) -> Cases:
        assert plan.folder.is_dir()
        plans.append(plan)
        return {name: [Case("x", 1.0)] for name in plan.measures}

    suites(monkeypatch, s=SimpleNamespace(measure=one))
    assert runner.run({"a": measure("a"), "b": measure("b")}, quick=False, directory=tmp_path) == []
    assert len(plans) == 1
    assert not plans[0].folder.exists()
    assert plans[0].wants("b", "z")
    assert not plans[0].wants("z")
    assert plans[0].payloads("a", "b", "z") == ["flights"]


def test_the_command_fails_for_an_unknown_name_and_for_a_missing_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--only", "nothing_like_it"]) == 2
    monkeypatch.setattr("benchmarks.__main__.read_results", dict)
    assert main(["check"]) == 1
    assert "missing: convert_cpu" in capsys.readouterr().err
    assert main(["table"]) == 0
    assert "not measured" in capsys.readouterr().out


def test_a_missed_target_is_no_failure_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    suites(monkeypatch, s=SimpleNamespace(measure=lambda plan: {"a": [Case("x", 9.0)]}))
    assert runner.run({"a": measure("a", target=Target(value=1.0))}, quick=False, directory=tmp_path) == []
    assert read_results(tmp_path)["a"]["met"] is False
