"""What a figure was measured on: processor, memory, load and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = (
    "tierberg",
    "pyarrow",
    "numpy",
    "numba",
    "zstandard",
    "grpcio",
    "obstore",
    "confluent-kafka",
    "fastavro",
    "protobuf",
    "orjson",
)


def machine() -> dict[str, object]:
    """Processor model, logical cores, memory in GiB, kernel and architecture."""
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that the figures depend on, and the commit measured."""
    found = {"python": platform.python_version(), "commit": _commit()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def load_average() -> float:
    """Runnable tasks over the last minute: figures taken while it exceeds what the run itself uses are noisy."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
