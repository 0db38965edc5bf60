"""Where compiled kernels are kept: with the installation (`tierberg warmup`), and in the data folder of each bridge.

A bridge that starts in an empty folder takes those of the installation, which it need not be able to write to; without
them it compiles for half a minute to two, says so, and keeps what it has compiled.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

import converter
from rsm_bridge.limits import KERNEL_LOADING_SECONDS


def kernel_cache(data_dir: Path) -> Path:
    """Folder of compiled kernels, kept between starts: 0.4 s instead of many. One for each state of the sources.

    It is made, and filled with the installation's, when it is not there.
    """
    kept = data_dir.resolve() / "numba-cache" / sources_digest()
    for old in kept.parent.glob("*"):
        if old != kept:
            shutil.rmtree(old, ignore_errors=True)
    if not kept.exists() and (built := installed_kernels()).is_dir():
        # Beside its place first: a start that dies in the middle leaves nothing that looks whole. numba writes there.
        part = kept.with_suffix(".part")
        shutil.copytree(built, part, copy_function=shutil.copyfile)
        for folder in (part, *(path for path in part.rglob("*") if path.is_dir())):
            folder.chmod(0o700)  # the installation's may be read-only
        part.rename(kept)
    return kept


def installed_kernels() -> Path:
    """Where `tierberg warmup` puts kernels for all bridges of this installation."""
    return Path(sys.prefix) / "share" / "tierberg" / "kernels" / sources_digest()


def sources_digest() -> str:
    """Names the state of the sources.

    numba compares the file of a kernel alone: one that calls a function or uses a constant of a file that has changed
    would go on with the old one after an upgrade.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(converter.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def is_cold(folder: Path) -> bool:
    """Whether nothing is compiled there yet."""
    return not any(folder.rglob("*.nbi"))


def warmed(
    folder: Path,
    warm: Callable[[], None],
    log: structlog.typing.FilteringBoundLogger,
    loading_s: float = KERNEL_LOADING_SECONDS,
) -> None:
    """Runs `warm`, and says so where that means to compile: it may take minutes on a busy machine.

    Kernels that are there may be of no use: another processor's, half of them, sources whose times a copy of the
    installation has changed. Only numba knows; so what takes longer than `loading_s` is said, too.
    """
    started, said = time.monotonic(), threading.Event()

    def say() -> None:
        said.set()
        log.info(
            "compiling kernels, once for this release; calls are answered after that",
            folder=str(folder),
            usual_s=30,
            spare_it="tierberg warmup, when it is installed",
        )

    watch = threading.Timer(loading_s, say)
    watch.daemon = True
    if is_cold(folder):
        say()
    else:
        watch.start()
    try:
        warm()
    finally:
        watch.cancel()
    if said.is_set():
        log.info("kernels are compiled", seconds=round(time.monotonic() - started, 1))
