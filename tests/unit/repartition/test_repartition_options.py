"""Options of `tierberg repartition` that do not go together are refused, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tierberg.cli import app


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "name a topic"),
        (["orders", "--all"], "name a topic"),
        (["--all", "--topic-id", "00" * 16], "--topic-id"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, given: list[str], said: str) -> None:
    folder = tmp_path / "data"
    found = CliRunner().invoke(app, ["repartition", *given, "--data-dir", str(folder)])
    assert found.exit_code == 2
    assert said in found.output
    assert not folder.exists()


def test_the_same_without_all_is_tried(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()  # as a bridge makes it
    given = ["repartition", "orders", "--topic-id", "00" * 16, "--data-dir", str(tmp_path)]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 2
    assert "topic orders has no table" in found.output
