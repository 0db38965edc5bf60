"""Compiled kernels outlive a start and not a change of the sources they were compiled from."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import converter
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import KERNEL_BYTES_FREE_MIN
from rsm_bridge.logs import logger
from rsm_bridge.serving.kernel_cache import (
    command_kernels,
    installed_kernels,
    is_cold,
    kernel_cache,
    sources_digest,
    warmed,
)
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of


def refuse(line: str) -> None:
    """Nothing is to be warned of."""
    raise AssertionError(line)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels of an installation."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    folder = installed_kernels() / "converter_1"
    folder.mkdir(parents=True)
    (folder / "k.nbi").write_bytes(b"index")
    (folder / "k.1.nbc").write_bytes(b"code")
    return folder.parent


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_many_first_starts_at_once_take_whole_kernels_and_leave_nothing(built: Path, tmp_path: Path) -> None:
    """Both wrote to the same folder, and the second died of it."""
    barrier = threading.Barrier(8)

    def start(_: int) -> Path:
        barrier.wait(30)
        return kernel_cache(tmp_path / "data", refuse)

    with ThreadPoolExecutor(8) as pool:
        (found,) = set(pool.map(start, range(8)))
    assert content(found) == content(built)
    assert sorted(path.name for path in found.parent.iterdir()) == sorted([found.name, "lock"])


def test_a_start_that_hangs_while_it_fills_the_folder_holds_up_no_other(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsm_bridge.serving.kernel_cache.KERNEL_FILL_SECONDS", 0.2)
    (tmp_path / "data" / "numba-cache").mkdir(parents=True)
    warned: list[str] = []
    with (tmp_path / "data" / "numba-cache" / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = kernel_cache(tmp_path / "data", warned.append)
    assert content(found) == content(built)
    assert len(warned) == 1
    assert tmp_path not in found.parents
    shutil.rmtree(found.parent)


def test_what_a_dead_start_left_goes(built: Path, tmp_path: Path) -> None:
    place = tmp_path / "data" / "numba-cache"
    for name in (sources_digest() + ".part", "part-dead"):
        (place / name / "kernels" / "converter_1").mkdir(parents=True)
        (place / name / "kernels" / "converter_1" / "k.nbi").write_bytes(b"half")
        (place / name / "kernels" / "converter_1").chmod(0o500)
    found = kernel_cache(tmp_path / "data", refuse)
    assert content(found) == content(built)
    assert sorted(path.name for path in place.iterdir()) == sorted([found.name, "lock"])


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("name", ["copytree", "mkdir", "TemporaryFile"])
def test_a_folder_that_cannot_be_used_stops_no_start(
    cause: int, name: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = {"copytree": shutil, "mkdir": Path, "TemporaryFile": tempfile}[name]
    real = getattr(room, name)

    def fails(*arguments: Any, **more: Any) -> Any:
        place = str(more.get("dir", arguments[1] if name == "copytree" else arguments[:1]))
        if "numba-cache" in place:
            raise OSError(cause, os.strerror(cause))
        return real(*arguments, **more)

    monkeypatch.setattr(room, name, fails)
    warned: list[str] = []
    found = kernel_cache(tmp_path / "data", warned.append)
    assert content(found) == content(built)
    assert tmp_path not in found.parents
    (line,) = warned
    assert os.strerror(cause) in line
    assert str(tmp_path / "data" / "numba-cache") in line
    assert not list((tmp_path / "data").rglob("*part*"))
    shutil.rmtree(found.parent)


def test_a_full_disk_is_seen_before_a_compiler_meets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda place: usage._replace(free=KERNEL_BYTES_FREE_MIN - ("numba-cache" in str(place))),
    )
    warned: list[str] = []
    found = kernel_cache(tmp_path / "data", warned.append)
    assert tmp_path not in found.parents
    assert "are free" in warned[0]
    shutil.rmtree(found.parent)


def test_no_folder_at_all_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(b"a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match=r"compiled kernels cannot be kept in .*; nor in a temporary folder"):
        kernel_cache(tmp_path / "data", refuse)


def test_a_command_takes_the_installations_kernels(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert command_kernels(refuse) == built
    monkeypatch.setattr(os, "access", lambda *_: False)  # root installed them
    found = command_kernels(refuse)
    assert found.parent == tmp_path / "cache" / "tierberg" / "kernels"
    assert content(found) == content(built)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_verify_compiles_nothing_after_warmup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing was compiled, an installation of its own, a user of its own."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.prefix = {str(tmp_path / 'installed')!r}\nfrom tierberg.cli import main\nmain()\n"
    )
    with bridge_thread(test_settings(tmp_path / "data")) as bridge, ShimClient(bridge.address) as shim:
        log = LogBuilder().fill(batches=3)
        shim.copy(segment_of(log))
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    subprocess.run([sys.executable, program, "warmup"], check=True, timeout=500)
    (folder,) = (tmp_path / "installed" / "share" / "tierberg" / "kernels").iterdir()
    before = content(folder)
    assert before
    words: list[str | Path] = [sys.executable, program, "verify", "--data-dir", tmp_path / "data"]
    found = subprocess.run(words, check=True, timeout=90, capture_output=True, text=True)
    assert found.stdout.startswith("1 segments"), found.stdout
    assert content(folder) == before
    assert not (tmp_path / "cache").exists()


def test_one_folder_for_each_state_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "converter"
    shutil.copytree(Path(converter.__file__).parent, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(converter, "__file__", str(sources / "__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))  # this one's may be warm for just these sources
    first = kernel_cache(tmp_path / "data", refuse)
    assert kernel_cache(tmp_path / "data", refuse) == first
    assert first.is_dir()
    with (sources / "values" / "avro" / "program.py").open("a") as opened:
        opened.write("# changed\n")
    assert kernel_cache(tmp_path / "data", refuse) != first
    assert not first.exists()


def test_a_bridge_in_an_empty_folder_takes_the_kernels_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    assert is_cold(kernel_cache(tmp_path / "data", refuse))
    built = installed_kernels() / "converter_1"
    built.mkdir(parents=True)
    (built / "k.nbi").write_bytes(b"index")
    (built / "k.1.nbc").write_bytes(b"code")
    for path in (built / "k.nbi", built / "k.1.nbc", built, built.parent):
        path.chmod(0o555)  # as root installs them
    found = kernel_cache(tmp_path / "data", refuse)
    assert (found / "converter_1" / "k.nbi").read_bytes() == b"index"
    assert not is_cold(found)
    assert all(path.stat().st_mode & 0o200 for path in (found, *found.rglob("*"))), "numba adds to it"
    (found / "converter_1" / "k.nbi").write_bytes(b"compiled for more types")
    assert kernel_cache(tmp_path / "data", refuse) == found
    assert (found / "converter_1" / "k.nbi").read_bytes() == b"compiled for more types"
    for path in (built.parent, built):
        path.chmod(0o755)


def test_a_user_without_a_home_has_kernels_for_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An arbitrary user id of a container is in no password file."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    assert tmp_path in command_kernels(said.append).parents
    assert len(said) == 1
    assert "no home" in said[0]


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    monkeypatch.setenv("XDG_CACHE_HOME", "rel")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / "home" / ".cache" in command_kernels(refuse).parents


def test_links_and_files_in_the_place_of_folders_go_and_nothing_behind_a_link_changes(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "data" / "numba-cache", tmp_path / "elsewhere" / "inner"
    elsewhere.mkdir(parents=True)
    elsewhere.chmod(0o755)
    place.mkdir(parents=True)
    (place / "link").symlink_to(elsewhere.parent)
    (place / "file").touch()
    (place / sources_digest()).touch()
    kept = kernel_cache(tmp_path / "data", refuse)
    assert kept.is_dir()
    assert {path.name for path in place.iterdir()} == {"lock", kept.name}
    assert elsewhere.stat().st_mode & 0o777 == 0o755


def test_no_temporary_folder_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none(**_: Any) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    monkeypatch.setattr(tempfile, "gettempdir", none)
    (tmp_path / "data").touch()
    with pytest.raises(SettingsError, match=r"nor in a temporary folder .TMPDIR.: No usable temporary directory found"):
        kernel_cache(tmp_path / "data", refuse)


def test_compiling_is_said_and_a_warm_start_is_not(tmp_path: Path) -> None:
    def compile_one() -> None:
        (tmp_path / "k.nbi").touch()

    with capture_logs() as cold:
        warmed(tmp_path, compile_one, logger("bridge"), threading.Event())
    assert [line["event"].partition(",")[0] for line in cold] == ["compiling kernels", "kernels are compiled"]
    with capture_logs() as warm:
        warmed(tmp_path, lambda: None, logger("bridge"), threading.Event())
    assert warm == []


@pytest.mark.parametrize("fits", [True, False])
def test_what_takes_long_is_told_as_what_it_is(tmp_path: Path, fits: bool) -> None:
    """Another processor's, or half of them: only numba knows. A busy machine just loads them slowly."""
    (tmp_path / "k.nbi").touch()
    compiling = threading.Event()

    def load_until_it_is_said() -> None:
        if not fits:
            (tmp_path / "other.nbi").touch()
        deadline = time.monotonic() + 30
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)

    with capture_logs() as lines:
        warmed(tmp_path, load_until_it_is_said, logger("bridge"), compiling, loading_s=0.1)
    said = (
        ["loading kernels takes long", "kernels are loaded"] if fits else ["compiling kernels", "kernels are compiled"]
    )
    assert [re.split("[,;]", line["event"])[0] for line in lines] == said
    assert compiling.is_set() != fits


def test_kernels_that_were_not_kept_are_warned_of(tmp_path: Path) -> None:
    with capture_logs() as lines:
        warmed(tmp_path, lambda: None, logger("bridge"), threading.Event())
    assert lines[-1]["log_level"] == "warning"
    assert lines[-1]["event"].startswith("compiled kernels were not kept")


@pytest.mark.parametrize("command", ["version", "serve", "verify"])
def test_no_command_loads_numba_before_it_has_said_where_kernels_are_kept(tmp_path: Path, command: str) -> None:
    """It reads the folder when it is loaded, and would keep kernels beside the sources ever after."""
    words = [command] if command == "version" else [command, "--data-dir", str(tmp_path / "data")]
    program = f"""
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            os._exit(0 if "NUMBA_CACHE_DIR" in os.environ else 9)
sys.meta_path.insert(0, Watch())
sys.argv = ["tierberg", *{words!r}]
from tierberg.cli import main
main()
"""
    environment = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)
