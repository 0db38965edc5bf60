"""Where compiled kernels are kept: of an installation (`tierberg warmup`), of a bridge, of a user who runs commands.

A bridge that starts in an empty folder takes those of the installation, which it need not be able to write to; without
them it compiles for half a minute to two, says so, and keeps what it has compiled. A folder that cannot be used costs
that time again at every start, and a warning; it stops nobody.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

import converter
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import KERNEL_BYTES_FREE_MIN, KERNEL_FILL_SECONDS, KERNEL_LOADING_SECONDS

_LOCK = "lock"
#: A folder that is being filled; a start that dies leaves it behind.
_PART = "part-"


def kernel_cache(data_dir: Path, warn: Callable[[str], None]) -> Path:
    """Folder of compiled kernels, kept between starts: 0.4 s instead of many. One for each state of the sources.

    It is made, and filled with the installation's, when it is not there. Where that cannot be, a folder of this
    process alone takes its place.

    Args:
        data_dir: of a bridge.
        warn: is told once, in a sentence, why kernels will not be kept.

    Raises:
        SettingsError: neither `data_dir` nor the folder for temporary files can hold them.
    """
    return _usable(data_dir.resolve() / "numba-cache", warn)


def command_kernels(warn: Callable[[str], None]) -> Path:
    """The same for a command, which may run as anybody: the installation's own where it may be written to.

    Raises:
        SettingsError: no folder can hold them.
    """
    built = installed_kernels()
    if built.is_dir() and os.access(built, os.W_OK):
        return built
    home = Path(os.environ.get("XDG_CACHE_HOME") or "")
    try:
        # A relative one is to be ignored (XDG Base Directory Specification).
        cache = home if home.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # an arbitrary user id of a container
        return _of_this_process("compiled kernels are not kept: no home, and no XDG_CACHE_HOME", warn)
    return _usable(cache / "tierberg" / "kernels", warn)


def _usable(place: Path, warn: Callable[[str], None]) -> Path:
    """The folder of these sources below `place`, or one of this process."""
    try:
        return _filled(place)
    except OSError as error:
        return _of_this_process(f"compiled kernels cannot be kept in {place}: {_cause(error)}", warn)


def _of_this_process(why: str, warn: Callable[[str], None]) -> Path:
    """A folder that ends with the process; `why` goes into the warning."""
    try:
        alone = Path(tempfile.mkdtemp(prefix="tierberg-kernels-"))
        atexit.register(shutil.rmtree, alone, ignore_errors=True)
        found = _filled(alone)
    except OSError as error:
        raise SettingsError(f"{why}; nor in a temporary folder (TMPDIR): {_cause(error)}") from error
    warn(f"{why}; the next start loads or compiles them again")
    return found


def _cause(error: OSError) -> str:
    return error.strerror or str(error)[:200]


def _filled(place: Path) -> Path:
    """Makes the folder and fills it.

    Raises:
        OSError: it cannot be written to, has no room, or another start fills it for longer than KERNEL_FILL_SECONDS.
    """
    kept = place / sources_digest()
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place / _LOCK):
        _clear(place, kept)
        if is_cold(kept) and installed_kernels().is_dir():
            _copy_installed(kept)
        kept.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=kept):
        pass  # numba looks so too, and would go elsewhere without a word
    if is_cold(kept) and shutil.disk_usage(kept).free < KERNEL_BYTES_FREE_MIN:
        raise OSError(f"less than {KERNEL_BYTES_FREE_MIN} bytes are free")
    return kept


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One start at a time, of all processes; the lock of one that dies is free."""
    until = time.monotonic() + KERNEL_FILL_SECONDS
    with lock.open("a") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        yield


def _copy_installed(kept: Path) -> None:
    """Beside its place first: a start that dies in the middle leaves nothing that looks whole."""
    part = Path(tempfile.mkdtemp(prefix=_PART, dir=kept.parent))
    try:
        shutil.copytree(installed_kernels(), part, copy_function=shutil.copyfile, dirs_exist_ok=True)
        _writable(part)
        shutil.rmtree(kept, ignore_errors=True)  # nothing is compiled there
        part.rename(kept)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _clear(place: Path, kept: Path) -> None:
    """Removes kernels of other sources, and what starts left that died."""
    for old in place.iterdir():
        if old.name == _LOCK:
            continue
        if old.is_symlink() or not old.is_dir():
            old.unlink()  # nothing of ours; what a link leads to is not touched
        elif old != kept:
            _writable(old)
            shutil.rmtree(old, ignore_errors=True)


def _writable(folder: Path) -> None:
    """Folders are as those of the installation were, which may be read-only."""
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o700)


def installed_kernels() -> Path:
    """Where `tierberg warmup` puts kernels for all bridges of this installation."""
    return Path(sys.prefix) / "share" / "tierberg" / "kernels" / sources_digest()


def sources_digest() -> str:
    """Names the state of the sources, in 16 characters.

    numba compares the file of a kernel alone: one that calls a function or uses a constant of a file that has changed
    would go on with the old one after an upgrade.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(converter.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def is_cold(folder: Path) -> bool:
    """Whether nothing is compiled there yet."""
    return not _kept(folder)


def warmed(
    folder: Path,
    warm: Callable[[], None],
    log: structlog.typing.FilteringBoundLogger,
    compiling: threading.Event,
    loading_s: float = KERNEL_LOADING_SECONDS,
) -> None:
    """Runs `warm`; where that means to compile, says so and sets `compiling`: it may take minutes on a busy machine.

    Kernels that are there may be of no use: another processor's, half of them, sources whose times a copy of the
    installation has changed. Only numba knows; so where it takes longer than `loading_s`, that is said, too.
    """
    started, before, said = time.monotonic(), _kept(folder), threading.Event()

    def compile_aloud() -> None:
        compiling.set()
        log.info(
            "compiling kernels, once for this release; calls are answered after that",
            folder=str(folder),
            usual_s=30,
            spare_it="tierberg warmup, when it is installed",
        )

    def slow() -> None:
        if _kept(folder) != before:
            compile_aloud()
        else:
            said.set()
            log.info("loading kernels takes long; what does not fit this machine is compiled", folder=str(folder))

    watch = threading.Timer(loading_s, slow)
    watch.daemon = True
    if before:
        watch.start()
    else:
        compile_aloud()
    try:
        warm()
    finally:
        watch.cancel()
    seconds = round(time.monotonic() - started, 1)
    if not (after := _kept(folder)):
        log.warning("compiled kernels were not kept, the next start compiles them again", folder=str(folder))
    elif after != before:
        log.info("kernels are compiled", seconds=seconds)
    elif said.is_set():
        log.info("kernels are loaded", seconds=seconds)


def _kept(folder: Path) -> set[tuple[str, int]]:
    """The indexes of compiled kernels, each with when it was written."""
    return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*.nbi")}
