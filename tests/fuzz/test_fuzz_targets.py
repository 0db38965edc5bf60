"""A few inputs of each target, and proof that the fuzzer notices what it must notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.broken import BROKEN
from tests.fuzz.mutate import bent_json, written
from tests.fuzz.registry import target_named, targets
from tests.fuzz.watch import Plan, fuzz

#: More are a matter of `make fuzz`.
INPUTS = {"command-line": 15, "grpc-streams": 25, "registry-answers": 25}


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
@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_is_noticed(name: str, tmp_path: Path) -> None:
    result = fuzz(name, Plan("1", 60, 0, tmp_path), print)
    assert not result.passed
    assert (tmp_path / "failures" / name).exists()
    assert any((tmp_path / "failures" / name).glob("*.input"))
    assert bool(result.deaths) == (name in {"broken-crash", "broken-hang"})


def test_the_same_seed_makes_the_same_inputs() -> None:
    for name in ("segment-zstd", "values-avro", "small-objects", "schema-json", "settings-yaml"):
        target = target_named(name)
        first, second = (target.make(random.Random(f"{name} 7"), ()) for _ in range(2))
        assert first == second


def test_bent_documents_are_of_many_kinds() -> None:
    rng = random.Random(1)
    texts = {written(bent_json({"a": [1, {"b": "c"}], "d": None}, rng), rng) for _ in range(300)}
    assert len(texts) > 200
