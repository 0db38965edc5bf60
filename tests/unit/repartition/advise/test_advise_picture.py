"""The report as text, JSON and picture."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from repartition.advise.picture import _bounds, _ticks, check_place, draw
from repartition.advise.report import AdviceReport, Answer, Figures, QueryReport, TableReport, as_json
from repartition.advise.text import as_text, seconds, spelled
from repartition.errors import RepartitionError
from rsm_bridge.words import size

BIG = Figures(files=40, data_bytes=5 << 30, delete_files=0, delete_bytes=0, rows=12_000_000)
SMALL = Figures(files=1, data_bytes=3 << 20, delete_files=2, delete_bytes=4096, rows=1000)
FAILED = "[UNRESOLVED_COLUMN] A column with name `$x_{1}$` cannot be resolved"


def timed(figures: Figures, first: float, median: float) -> Figures:
    return replace(figures, counted=True, result_rows=7, first_s=first, median_s=median)


def report(*, ran: bool = False, queries: int = 3) -> AdviceReport:
    tables = (
        TableReport(
            name="kafka.orders", kind="topic", partition_by=("_kafka_partition",), sort_by=(), snapshot_id=1, whole=BIG
        ),
        TableReport(
            name="kafka.orders_projection",
            kind="append",
            partition_by=("day(ts)", "bucket(16, id)"),
            sort_by=("id",),
            snapshot_id=2,
            whole=BIG,
        ),
        TableReport(name="kafka.orders_latest", kind="upsert", error="has no rows yet"),
    )
    big, small, none = (
        (timed(BIG, 30.0, 12.5), timed(SMALL, 0.5, 0.0312), timed(Figures(), 0.2, 0.004))
        if ran
        else (BIG, SMALL, Figures())
    )
    each = [
        QueryReport(
            ["one key", "$\\frac{a}$ [bold]名", "n" * 60][number % 3] + str(number // 3 or ""),
            "SELECT 1 FROM {table}",
            (
                Answer("kafka.orders", none if number == 1 else big),
                Answer("kafka.orders_projection", small, compared={"id": "equal"}),
                Answer("kafka.orders_latest", error=FAILED),
            ),
        )
        for number in range(queries)
    ]
    return AdviceReport(
        topic="orders.v1_x",
        at_ms=1_750_000_000_000,
        ran=ran,
        tables=tables,
        queries=tuple(each),
        suggestions=(("kafka.orders_projection", "Nothing."),),
    )


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("queries", [1, 20])
def test_the_picture_is_a_png_with_bars(tmp_path: Path, queries: int, *, ran: bool) -> None:
    path = tmp_path / "picture.png"
    wide, tall = draw(report(ran=ran, queries=queries), path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (wide, tall)
    pixels = imread(path)
    assert pixels.shape[:2] == (tall, wide)
    assert wide == (1920 if ran else 1080)
    assert 300 < tall < 30_000
    # The topic's own table is grey, the first projection blue; the projection's bars are shorter.
    areas = [int(np.all(np.abs(pixels[:, :, :3] - colour) < 0.01, axis=2).sum()) for colour in colours()]
    assert areas[1] > 500 * queries
    assert areas[0] > areas[1]


def colours() -> list[np.ndarray]:
    return [np.array([int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)]) for text in ("8c8c8c", "0072b2")]


def test_a_picture_of_nothing(tmp_path: Path) -> None:
    empty = AdviceReport(
        topic="t",
        at_ms=0,
        ran=True,
        tables=(TableReport(name="kafka.t", kind="topic", error="x"),),
        queries=(QueryReport("q", "", (Answer("a", error="x"),)),),
    )
    wide, tall = draw(empty, tmp_path / "picture.png")
    assert imread(tmp_path / "picture.png").shape[:2] == (tall, wide)


def test_places_for_pictures(tmp_path: Path) -> None:
    check_place(tmp_path / "a.PNG")
    (tmp_path / "b.png").mkdir()
    for path in (tmp_path / "a.jpg", tmp_path / "b.png", tmp_path / "none" / "a.png"):
        with pytest.raises(RepartitionError) as raised:
            check_place(path)
        assert raised.value.kind == "no_picture"
    with pytest.raises(RepartitionError, match="cannot be written"):
        draw(report(), tmp_path / "b.png")


@given(st.lists(st.none() | st.floats(0, 1e18), max_size=5))
def test_ends_of_the_axis_hold_all_bars(values: list[float | None]) -> None:
    positive = [value for value in values if value]
    low, high = _bounds(values)
    assert 0 < low < high
    assert all(low < max(value, 1e-6) < high for value in positive)
    for base in (2, 10):
        ticks = _ticks(low, high, base)
        assert 1 <= len(ticks) <= 8
        assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)


def test_the_text_has_all_figures() -> None:
    said = as_text(report(ran=True), 160)
    assert said.startswith("topic orders.v1_x, 2025-06-15, 12,000,000 rows")
    for part in (
        "40",
        "5.0 GiB",
        "1 + 2 deletes",
        "3.0 MiB",
        "0.031 s",
        "12.5 s",
        "30.0 s",
        "[bold]名",
        "UNRESOLVED",
        "day(ts)",
    ):
        assert part in said
    assert said.endswith("kafka.orders_projection: Nothing.")
    assert "\x1b" not in said
    assert "MEDIAN" not in as_text(report(), 160)
    assert max(len(line) for line in as_text(report(), 90).splitlines()) <= 90


def test_the_document() -> None:
    document = json.loads(as_json(report(ran=True)))
    assert (document["version"], document["topic"], document["ran"]) == (1, "orders.v1_x", True)
    first, second, third = document["queries"][0]["tables"]
    assert first["figures"]["data_bytes"] == 5 << 30
    assert second["figures"]["delete_files"] == 2
    assert second["compared"] == {"id": "equal"}
    assert third == {"table": "kafka.orders_latest", "figures": None, "error": FAILED, "compared": {}}
    assert document["tables"][1]["partition_by"] == ["day(ts)", "bucket(16, id)"]
    assert document["suggestions"] == [{"table": "kafka.orders_projection", "said": "Nothing."}]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (10 << 20, "10 MiB"),
        (3 << 39, "1.5 TiB"),
        (1 << 60, "1048576 TiB"),
    ],
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


def test_numbers_of_files() -> None:
    assert [spelled(item) for item in (Figures(files=1), Figures(files=0), SMALL)] == [
        "1 file",
        "0 files",
        "1 file + 2 deletes",
    ]


def test_seconds() -> None:
    assert [seconds(value) for value in (0.004, 0.25, 1.0, 3.14, 12.5, 125.0)] == [
        "0.004 s",
        "0.25 s",
        "1.00 s",
        "3.14 s",
        "12.5 s",
        "125 s",
    ]
