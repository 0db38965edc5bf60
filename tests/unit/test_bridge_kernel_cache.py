"""Compiled kernels outlive a start and not a change of the sources they were compiled from."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import converter
from rsm_bridge.kernel_cache import installed_kernels, is_cold, kernel_cache, warmed
from rsm_bridge.logs import logger


def test_one_folder_for_each_state_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "converter"
    shutil.copytree(Path(converter.__file__).parent, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(converter, "__file__", str(sources / "__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))  # this one's may be warm for just these sources
    first = kernel_cache(tmp_path / "data")
    first.mkdir(parents=True)
    assert kernel_cache(tmp_path / "data") == first
    assert first.is_dir()
    with (sources / "values" / "avro_ops.py").open("a") as opened:
        opened.write("# changed\n")
    assert kernel_cache(tmp_path / "data") != first
    assert not first.exists()


def test_a_bridge_in_an_empty_folder_takes_the_kernels_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    assert is_cold(kernel_cache(tmp_path / "data"))
    built = installed_kernels() / "converter_1"
    built.mkdir(parents=True)
    (built / "k.nbi").write_bytes(b"index")
    (built / "k.1.nbc").write_bytes(b"code")
    for path in (built / "k.nbi", built / "k.1.nbc", built, built.parent):
        path.chmod(0o555)  # as root installs them
    found = kernel_cache(tmp_path / "data")
    assert (found / "converter_1" / "k.nbi").read_bytes() == b"index"
    assert not is_cold(found)
    assert all(path.stat().st_mode & 0o200 for path in (found, *found.rglob("*"))), "numba adds to it"
    (found / "converter_1" / "k.nbi").write_bytes(b"compiled for more types")
    assert kernel_cache(tmp_path / "data") == found
    assert (found / "converter_1" / "k.nbi").read_bytes() == b"compiled for more types"
    for path in (built.parent, built):
        path.chmod(0o755)


def test_compiling_is_said_and_a_warm_start_is_not(tmp_path: Path) -> None:
    def compile_one() -> None:
        (tmp_path / "k.nbi").touch()

    with capture_logs() as cold:
        warmed(tmp_path, compile_one, logger("bridge"))
    assert [line["event"].partition(",")[0] for line in cold] == ["compiling kernels", "kernels are compiled"]
    with capture_logs() as warm:
        warmed(tmp_path, compile_one, logger("bridge"))
    assert warm == []


def test_kernels_that_are_there_and_of_no_use_are_compiled_aloud(tmp_path: Path) -> None:
    """Another processor's, or half of them: only that it takes long shows it."""
    (tmp_path / "k.nbi").touch()

    def compile_until_it_is_said() -> None:
        deadline = time.monotonic() + 30
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)

    with capture_logs() as lines:
        warmed(tmp_path, compile_until_it_is_said, logger("bridge"), loading_s=0.01)
    assert [line["event"].partition(",")[0] for line in lines] == ["compiling kernels", "kernels are compiled"]
