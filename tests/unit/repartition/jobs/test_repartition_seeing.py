"""What a job shows and counts of its projections, with a job that only says that it runs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

import repartition.jobs.rounds
from repartition.errors import RepartitionError
from repartition.jobs.command import RepartitionOptions
from repartition.jobs.command import repartition as run_job
from repartition.jobs.events import Began, Maintained, ProjectionName, Watcher, lines
from repartition.jobs.metrics import ProjectionMetrics, served
from repartition.jobs.progress_bars import Shown, shown, with_bars
from repartition.jobs.rounds import Round, Tended
from repartition.limits import RACES_MAX
from repartition.maintain.due import Budget, Chore
from repartition.maintain.maintain import Done
from repartition.run.frontier import Frontier, Position
from rsm_bridge.limits import MIB
from tests.worlds.projection_job_support import START, STEPS, TABLE, FakeJob, Run, portion

NAME = ProjectionName("orders", TABLE)


def rounds(watchers: tuple[Watcher, ...], *runs: Run, before: Callable[[], Frontier] = lambda: START) -> bool:
    job: Any = FakeJob(iter(runs), before=before)
    return not Round(watchers).run([Tended(job, Budget(0.2))])


@pytest.fixture(autouse=True)
def _one_chore(monkeypatch: pytest.MonkeyPatch) -> None:
    def maintain(job: Any, budget: Budget) -> list[Done]:
        job.step("compaction")
        budget.maintaining_s += 1.0
        return [Done("compaction", 1.0, "9 files became 1")]

    monkeypatch.setattr(repartition.jobs.rounds, "maintain", maintain)


def test_elsewhere_every_step_is_a_line() -> None:
    said: list[str] = []
    assert rounds((lines(said.append, steps=True),), portion(3), portion(0))
    plain = [re.sub(r"\d+\.\d s|\d+ s", "T", line.removeprefix(f"{TABLE}: ")) for line in said]
    chore = ("compaction", "compaction in T: 9 files became 1")
    assert plain == [
        *STEPS,
        "1 partitions, 1.0 MiB read in T, 2 dead letters, 3.0 MiB left",
        *chore,
        *STEPS,
        "1 partitions, 1.0 MiB read in T, 2 dead letters",
        *chore,
    ]


def test_a_job_without_end_says_what_share_maintenance_takes() -> None:
    said: list[str] = []
    done = Done("compaction", 1.0, "9 files became 1")
    lines(said.append, steps=False)(NAME, Maintained(done, 60.0))
    assert said == [f"{TABLE}: compaction in 1.0 s: 9 files became 1; 60 s of maintenance per hour of work"]


def test_races_and_failures_are_lines_too() -> None:
    said: list[str] = []
    watcher = lines(said.append, steps=False)
    assert rounds((watcher,), RepartitionError("raced", "x"))
    assert said[:2] == [f"{TABLE}: another job was faster, once more", f"{TABLE}: nothing new"]
    assert not rounds((watcher,), RepartitionError("key_moved", "key 7 was met in two partitions"))
    assert said[-1] == f"{TABLE}: failed: key 7 was met in two partitions"
    assert not rounds((watcher,), *[RepartitionError("raced", "again")] * (RACES_MAX + 1))
    assert said[-1] == f"{TABLE}: failed: again"


def test_races_do_not_end_a_job_while_the_projection_comes_further() -> None:
    said: list[str] = []
    frontiers = (Frontier(b"t" * 16, {0: Position(0, n // 3)}) for n in range(100))
    races = [RepartitionError("raced", "again")] * (4 * RACES_MAX)
    assert rounds((lines(said.append, steps=False),), *races, before=lambda: next(frontiers))
    assert len(said) == len(races) + 2
    failures = [RepartitionError("raced", "")] * RACES_MAX + [RepartitionError("spark", "no space")]
    assert not rounds((lines(said.append, steps=False),), *failures)
    assert said[-1].endswith("no space")


def screen(draw: Callable[[tuple[Watcher, ...], Callable[[], list[str]]], None]) -> str:
    """What a terminal was sent; `draw` gets the watchers, and what shows the bars as they are."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with with_bars(console, lambda _: (2, 3)) as view:
        bars: Any = view.watchers[-1]

        def now() -> list[str]:
            return [
                f"{task.completed / MIB:g}/{(task.total or 0) / MIB:g} {task.fields['note']}"
                for task in bars.progress.tasks
            ]

        draw(view.watchers, now)
    return out.getvalue()


def test_a_bar_is_over_the_bytes_that_are_left_to_read() -> None:
    seen: list[str] = []

    def draw(watchers: tuple[Watcher, ...], now: Callable[[], list[str]]) -> None:
        def look(_: ProjectionName, __: object) -> None:
            seen.extend(line for line in now() if seen[-1:] != [line])

        rounds((*watchers, look), portion(3), portion(5, 2), portion(0, 5))
        rounds((*watchers, look))
        rounds((*watchers, look), portion(0, 4))

    text = screen(draw)
    skipped = (" read", " letters", " publish", " compaction")
    assert [line for line in seen if not line.endswith(skipped)] == [
        "0/4 ", "0/4 write", *["1/4 "] * 2,  # after a run and its chore
        "1/8 ", "1/8 write", *["3/8 "] * 2,
        "3/8 write", *["8/8 has everything"] * 3,  # and after a round with nothing new
        "0/4 ", "0/4 write", "4/4 has everything", "4/4 has everything",
    ]  # fmt: skip
    assert f"{TABLE}: 1 partitions, 2.0 MiB read" in text
    assert f"{TABLE}: nothing new" in text
    assert f"{TABLE}: write" not in text
    assert "4.0/4.0 MiB" in text, "the last frame"


def test_a_step_has_the_tasks_that_spark_runs() -> None:
    def draw(watchers: tuple[Watcher, ...], _: Callable[[], list[str]]) -> None:
        watchers[-1](NAME, Began("write"))

    assert "write, 2 of 3 tasks" in screen(draw)


def test_a_failure_stays_at_the_bar() -> None:
    last: list[str] = []

    def draw(watchers: tuple[Watcher, ...], now: Callable[[], list[str]]) -> None:
        assert not rounds(watchers, portion(3), RepartitionError("spark", "[bold]no space[/bold]"))
        last.extend(now())

    text = screen(draw)
    assert last == ["1/2 failed"]
    assert "failed, 2 of 3" not in text, "nothing of it runs any more"
    assert f"{TABLE}: failed: [bold]no space[/bold]" in text


def test_what_is_no_terminal_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(Console()) as view:
        rounds(view.watchers, portion(0))
        view.say("else")
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"{TABLE}: read", f"{TABLE}: write"]
    assert said[-1] == "else"
    assert "\x1b" not in "".join(said)


def samples(address: str) -> dict[tuple[str, ...], float]:
    """Of the page: by name and the label beside topic and table."""
    with urlopen(f"{address}", timeout=10) as page:
        text = page.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.endswith("_created"):
                assert (labels.pop("topic"), labels.pop("table")) == ("orders", TABLE)
                found[sample.name.removeprefix("tierberg_copy_"), *labels.values()] = sample.value
    return found


def test_the_page_has_what_a_job_did() -> None:
    ticks = iter(range(1000))
    metrics = ProjectionMetrics(clock=lambda: float(next(ticks)), now=lambda: 1_700_000_000.5)
    metrics.expect([NAME])
    said: list[str] = []
    with served(metrics, "127.0.0.1:0", said.append):
        address = said[0].removeprefix("metrics: ")
        before = samples(address)
        assert before["runs_total", "failed"] == before["read_records_total",] == 0
        rounds((metrics,), portion(3), RepartitionError("raced", ""), portion(1, 2))
        found = samples(address)
        assert (found["lag_offsets",], found["last_success_timestamp_seconds",]) == (0, 1_700_000_000.5)
        assert [found["runs_total", kind] for kind in ("ok", "nothing_new", "raced", "failed")] == [2, 1, 1, 0]
        assert (found["read_records_total",], found["read_bytes_total",]) == (10, 3 * MIB)
        assert found["dead_letters_total",] == 4
        # The clock ticks once when a step begins and once when it ends: of three runs, one ended while it published.
        assert {key[1]: value for key, value in found.items() if key[0] == "step_seconds_total"} == {
            "read": 3, "write": 3, "dead_letters": 3, "publish": 3,
        }  # fmt: skip
        assert found["maintenance_seconds_total", "compaction"] == 3
        assert not rounds((metrics,), portion(1), RepartitionError("spark", ""))
        failed = samples(address)
        assert (failed["runs_total", "failed"], failed["failures_total", "spark"]) == (1, 1)
        assert failed["lag_offsets",] == 5, "of the last run that went well"
        with pytest.raises(HTTPError, match="404"):
            urlopen(address.replace("metrics", "healthz"), timeout=10)


@pytest.mark.parametrize("begun", [("expiry",), ()], ids=["chore", "look"])
def test_maintenance_that_fails_is_no_run_that_failed(
    monkeypatch: pytest.MonkeyPatch, begun: tuple[Chore, ...]
) -> None:
    def maintain(job: Any, _: Budget) -> list[Done]:
        for chore in begun:
            job.step(chore)
        raise RepartitionError("spark", "it failed")

    monkeypatch.setattr(repartition.jobs.rounds, "maintain", maintain)
    metrics, said = ProjectionMetrics(), list[str]()
    with served(metrics, "127.0.0.1:0", said.append):
        metrics.expect([NAME])
        assert not rounds((metrics,), portion(0))
        found = samples(said[0].removeprefix("metrics: "))
    assert (found["runs_total", "ok"], found["runs_total", "failed"]) == (1, 0)
    assert found["failures_total", "spark"] == 1
    assert {key[-1] for key in found if key[0] == "maintenance_seconds_total"} == set(begun)


def test_a_job_serves_the_page_that_the_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read while its session is open; there is no topic to read yet."""
    said, pages = list[str](), list[bytes]()

    @contextmanager
    def session(*_: object) -> Iterator[None]:
        with urlopen(said[0].removeprefix("metrics: "), timeout=10) as page:
            pages.append(page.read())
        yield

    monkeypatch.setattr("repartition.jobs.command.spark_session", session)
    config = tmp_path / "tierberg.yaml"
    (tmp_path / "data" / "store").mkdir(parents=True)
    rule = "{pattern: t, value_format: json, copies: [{table: mart.t}]}"
    config.write_text(
        f"data_dir: {tmp_path}/data\nrepartition: {{metrics: '127.0.0.1:0', side_by_side: 1}}\ntopics: [{rule}]\n"
    )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("repartition.jobs.command.Round.run", stop)
    with pytest.raises(KeyboardInterrupt):
        run_job(config, None, RepartitionOptions(continuous=True), Shown((), said.append))
    assert b"tierberg_copy_" in pages[0]


def test_a_port_that_is_taken_does_not_stop_a_job() -> None:
    first, second = list[str](), list[str]()
    with served(ProjectionMetrics(), "127.0.0.1:0", first.append):
        taken = first[0].removeprefix("metrics: http://").removesuffix("/metrics")
        with served(ProjectionMetrics(), taken, second.append):
            assert re.match(rf"repartition.metrics: cannot listen on {taken}: .*; this job runs without", second[0])
    with served(ProjectionMetrics(), None, second.append):
        assert len(second) == 1
