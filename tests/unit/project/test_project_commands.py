"""Makefile, CI script and container files say what they must."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def shown() -> str:
    return subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.mark.parametrize("target", "demo stack test e2e catalogs faults bench sabotage lint fmt clean".split())
def test_make_lists_its_targets_by_default(target: str, shown: str) -> None:
    assert re.search(rf"^  make {target} +\S", shown, re.MULTILINE)


def test_ci_runs_the_suite_last_and_stops_at_the_first_failure() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in text
    assert text.strip().splitlines()[-1] == "make test"


def test_strict_tools() -> None:
    tools = PYPROJECT["tool"]
    assert tools["mypy"]["strict"] is True
    assert {"--strict-markers", "--strict-config"} <= set(tools["pytest"]["ini_options"]["addopts"])
    assert tools["pytest"]["ini_options"]["filterwarnings"][0] == "error"
    assert tools["ruff"]["line-length"] == 120


def test_exact_pins() -> None:
    pinned = [name for name in PYPROJECT["project"]["dependencies"] if "==" in name]
    for package in ("pyiceberg", "cramjam", "zstandard", "isal", "obstore"):
        assert any(name.startswith(package) for name in pinned)


def test_import_rules_cover_every_package() -> None:
    rules = PYPROJECT["tool"]["importlinter"]
    packages = {"converter", "iceberg_catalog", "rsm_bridge", "repartition", "tierberg", "benchmarks", "tests"}
    assert set(rules["root_packages"]) == packages
    assert not [contract["name"] for contract in rules["contracts"] if "ignore_imports" in contract]
    floors = {room for contract in rules["contracts"] for room in contract.get("containers", ())}
    assert floors >= {"converter", "iceberg_catalog", "rsm_bridge", "repartition"}


def test_import_rules_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
