"""measures.toml is complete, and a promise is judged the right way round."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from benchmarks.measures import Measure, Target, load_measures, select
from rsm_bridge.config.settings import LimitSettings

MEASURE = Measure(
    id="m", title="t", unit="ms", direction="lower", floor="f", target=None, payloads=("flights",), suite="s"
)

ENTRY = """
[m]
title = "t"
unit = "ms"
direction = "lower"
floor = "f"
payloads = ["flights"]
suite = "s"
"""


def load(tmp_path: Path, text: str) -> dict[str, Measure]:
    path = tmp_path / "measures.toml"
    path.write_text(text)
    return load_measures(path)


def test_every_promise_of_the_project_has_an_id_with_its_target() -> None:
    measures = load_measures()
    targets = {name: measure.target for name, measure in measures.items() if measure.target}
    assert targets == {
        "convert_cpu": Target(times_floor=1.6),
        "replay_cpu": Target(value=1.3),
        "random_read_cpu_p50": Target(value=5.0),
        "random_read_cpu_p99": Target(value=15.0),
        "copy_memory": Target(value=150.0),
        "load_fetch_max": Target(value=500.0),
        "load_memory": Target(plus_floor=832.0),
        "delete_unknown_rate": Target(value=2000.0),
        "copy_cpu_broker": Target(plus_floor=0.4),
        "consume_rate_1": Target(times_floor=0.5),
        "consume_rate_4": Target(times_floor=0.5),
        "consume_rate_1_tls": Target(times_floor=0.5),
        "consume_rate_4_tls": Target(times_floor=0.5),
        "produce_p99_backfill_0": Target(times_floor=1.2),
        "produce_p99_backfill_10": Target(times_floor=1.2),
        "tail_p99_backfill_0": Target(times_floor=1.2),
        "tail_p99_backfill_10": Target(times_floor=1.2),
        "commit_append_cpu": Target(value=60.0),
        "commit_remove_cpu": Target(value=1000.0),
        "commit_growth": Target(value=1.5),
        "metadata_bytes": Target(value=50.0),
        "freshness_p99": Target(value=5.0),
        "typed_copy_rate_avro": Target(value=60.0),
        "typed_copy_rate_avro_fields": Target(value=2.0),
        "typed_damage_loss": Target(value=10.0),
        "typed_residual": Target(value=0.1),
        "copy2_append_cpu": Target(value=40.0),
        "copy2_upsert_growth": Target(value=2.0),
        "copy2_file_size": Target(value=0.5),
        "copy2_query_one_key": Target(value=5.0),
    }


def test_the_memory_limit_is_the_sum_of_the_budgets_of_the_settings() -> None:
    limits = LimitSettings()
    total = limits.copy_memory_mib + limits.chunk_cache_mib + limits.index_cache_mib
    assert load_measures()["load_memory"].target == Target(plus_floor=float(total))


def test_rates_are_better_higher_and_costs_lower() -> None:
    for name, measure in load_measures().items():
        assert measure.direction == ("higher" if "rate" in name else "lower"), name


def test_every_suite_has_a_module_with_measure() -> None:
    suites = Path(__file__).parents[3] / "benchmarks" / "suites"
    for measure in load_measures().values():
        source = (suites / f"{measure.suite}.py").read_text()
        assert "\ndef measure(plan: Plan) -> Cases:" in source, measure.suite


def test_targets_follow_from_the_floor() -> None:
    assert Target(value=1.3).resolve(None) == 1.3
    assert Target(value=1.3).resolve(9.0) == 1.3
    assert Target(times_floor=0.5).resolve(10.0) == 5.0
    assert Target(plus_floor=0.4).resolve(0.25) == pytest.approx(0.65)
    assert Target(times_floor=0.5).resolve(None) is None


@pytest.mark.parametrize(
    ("direction", "value", "met"),
    [("lower", 9.9, True), ("lower", 10.0, True), ("lower", 10.1, False), ("higher", 9.9, False), ("higher", 10, True)],
)
def test_equality_keeps_a_promise(direction: Literal["lower", "higher"], value: float, met: bool) -> None:
    measure = Measure("m", "t", "u", direction, "f", None, ("flights",), "s")
    assert measure.met(value, 10.0) is met


def test_the_worst_case_is_the_one_furthest_from_its_own_target() -> None:
    lower = MEASURE
    assert lower.badness(3.0, 2.0) > lower.badness(30.0, 40.0)
    higher = Measure("m", "t", "u", "higher", "f", None, ("flights",), "s")
    assert higher.badness(3.0, 5.0) > higher.badness(2.0, 1.0)
    assert higher.badness(1.0, None) > higher.badness(2.0, None)
    assert higher.badness(0.0, 5.0) > higher.badness(1.0, 5.0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (ENTRY.replace('unit = "ms"\n', ""), "missing"),
        (ENTRY + 'colour = "red"\n', "unknown"),
        (ENTRY.replace('"lower"', '"down"'), "direction"),
        (ENTRY.replace('"flights"', '"trains"'), "payloads"),
        (ENTRY.replace('["flights"]', "[]"), "payloads"),
        (ENTRY + "target = { value = 1.0, times_floor = 2.0 }\n", "exactly one"),
        (ENTRY + "target = { about = 1.0 }\n", "exactly one"),
        (ENTRY + "target = {}\n", "exactly one"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path: Path, broken: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"m: .*{message}"):
        load(tmp_path, broken)


def test_a_right_entry_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, ENTRY)["m"] == MEASURE


def test_a_measure_may_be_without_payloads(tmp_path: Path) -> None:
    bare = ENTRY.replace('payloads = ["flights"]\n', "")
    assert load(tmp_path, bare)["m"] == replace(MEASURE, payloads=())


def test_only_takes_ids_and_suites_and_refuses_other_words() -> None:
    measures = load_measures()
    assert list(select(measures, [])) == list(measures)
    assert list(select(measures, ["replay_cpu"])) == ["replay_cpu"]
    assert set(select(measures, ["replay", "convert_cpu"])) == {"replay_cpu", "replay_rate", "convert_cpu"}
    with pytest.raises(ValueError, match="replay_gpu"):
        select(measures, ["replay_gpu"])
