"""A few inputs of each target, and proof that the fuzzer notices what it must notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import watch
from tests.fuzz.__main__ import main
from tests.fuzz.broken import BROKEN
from tests.fuzz.envelope import packed
from tests.fuzz.mutate import bent_json, written
from tests.fuzz.registry import target_named, targets
from tests.fuzz.values import difference
from tests.fuzz.watch import Plan, fuzz

#: More are a matter of `make fuzz`.
INPUTS = {"command-line": 15, "grpc-streams": 25, "registry-answers": 25}


@pytest.mark.timeout(400)  # the first one compiles kernels
@pytest.mark.parametrize("name", targets())
def test_a_few_inputs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # the command line leaves files where it is called
    target = target_named(name)
    target.prepare()
    try:
        for number in range(INPUTS.get(name, 60)):
            found = target.run(target.make(random.Random(f"{name} {number}"), ()))
            if found.judge is not None:
                found.judge()
    finally:
        target.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "END_SECONDS", 3.0)
    result = fuzz(name, Plan("1", 60, 0, tmp_path), print)
    assert not result.passed
    assert (tmp_path / "failures" / name).exists()
    assert any((tmp_path / "failures" / name).glob("*.input")) == (name not in {"broken-close", "broken-end"})
    assert bool(result.deaths) == (name in {"broken-crash", "broken-hang", "broken-close", "broken-end"})
    for death in result.deaths:
        assert Path(death.rpartition(" in ")[2]).is_file(), "where its last words are"


def test_a_thread_that_is_left_behind_is_no_death(tmp_path: Path) -> None:
    """A bridge's own threads kept a child from ending after its last input."""
    result = fuzz("lingering", Plan("1", 30, 0, tmp_path), print)
    assert result.passed, result.deaths
    assert result.inputs == 30


def test_a_child_that_has_bridges_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = fuzz("grpc-streams", Plan("1", 20, 0, tmp_path), print)
    assert result.passed, result.deaths
    assert result.inputs == 20
    assert not any((tmp_path / "work").iterdir()), "the bridge's folder"
    assert (tmp_path / "failures" / "grpc-streams" / "child.log").stat().st_size > 0
    shown = capfd.readouterr()
    assert shown.out + shown.err == "", "what a bridge logs is in the file"


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_run_ends_by_inputs_or_by_time(seconds: float, tmp_path: Path) -> None:
    result = fuzz("kafka-files", Plan("1", 0 if seconds else 40, seconds, tmp_path), print)
    assert result.passed, result.deaths
    assert result.inputs == 40 or seconds


def test_a_run_leaves_what_other_targets_have_found(tmp_path: Path) -> None:
    for name in ("kafka-files", "values-avro"):
        (tmp_path / "failures" / name).mkdir(parents=True)
        (tmp_path / "failures" / name / "7.input").write_bytes(b"old")
    assert main(["--target", "kafka-files", "--inputs", "5", "--folder", str(tmp_path)]) == 0
    assert not (tmp_path / "failures" / "kafka-files" / "7.input").exists()
    assert (tmp_path / "failures" / "values-avro" / "7.input").read_bytes() == b"old"


def test_what_is_wrong_beside_a_text_that_is_replaced() -> None:
    """Nobody reads the text, which is no UTF-8; docs/types.md."""
    target = target_named("values-protobuf")
    replaced, nan = b"\x72\x01\xff\x72\x01s", b"\xe2\x03\x09\x11" + bytes(6) + b"\xf8\x7f"  # of 14; of 60
    values = [replaced, replaced + nan, nan, b"\x72\x01\xff", b"\x72\x01s"]
    found = target.run(packed({"schema": "proto3"}, values))
    assert found.words == "ok,out_of_range: a number in a Struct or Value that J,undecodable: a string is not UTF-8"
    assert found.judge is not None
    found.judge()


def test_a_difference_is_said_before_the_value_that_has_it() -> None:
    found = {"a": 1, "b": "x" * 5000, "c": None}
    said = difference(found, {"a": 1, "b": "y", "c": None}, b"v" * 10_000)
    assert said.startswith("found {'b': 'xxx")
    assert ", wanted {'b': 'y'}, in b'vvv" in said
    assert len(said) < 4000
    assert difference("out_of_range: x", "undecodable", b"") == "found 'out_of_range: x', wanted 'undecodable', in b''"


def test_the_same_seed_makes_the_same_inputs() -> None:
    for name in ("segment-zstd", "values-avro", "small-objects", "schema-json", "settings-yaml"):
        target = target_named(name)
        first, second = (target.make(random.Random(f"{name} 7"), ()) for _ in range(2))
        assert first == second


def test_bent_documents_are_of_many_kinds() -> None:
    rng = random.Random(1)
    texts = {written(bent_json({"a": [1, {"b": "c"}], "d": None}, rng), rng) for _ in range(300)}
    assert len(texts) > 200
