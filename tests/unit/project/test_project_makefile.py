"""The Makefile looks for what it needs from outside before it fetches anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("missing", ["java", "mvn"])
@pytest.mark.parametrize("target", ["setup", "test-shim"])
def test_without_java_or_maven_nothing_is_begun(tmp_path: Path, missing: str, target: str) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    for program in {"java", "mvn"} - {missing}:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    argv = [make, "-f", str(ROOT / "Makefile"), target]
    done = subprocess.run(
        argv, cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"{missing} is not on PATH: JDK 17 and Maven are needed" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"java", "mvn"}
