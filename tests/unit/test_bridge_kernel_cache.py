"""Compiled kernels outlive a start and not a change of the sources they were compiled from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import converter
from rsm_bridge.serve_command import kernel_cache


def test_one_folder_for_each_state_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "converter"
    shutil.copytree(Path(converter.__file__).parent, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(converter, "__file__", str(sources / "__init__.py"))
    first = kernel_cache(tmp_path / "data")
    first.mkdir(parents=True)
    assert kernel_cache(tmp_path / "data") == first
    assert first.is_dir()
    with (sources / "values" / "avro_ops.py").open("a") as opened:
        opened.write("# changed\n")
    assert kernel_cache(tmp_path / "data") != first
    assert not first.exists()
