"""One version, that of pyproject.toml, for jar, wheel, image and pages; one protocol for bridge, plugin, contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rsm_bridge.limits import PROTOCOL_VERSION

ROOT = Path(__file__).resolve().parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
_NUMBER = r"(\d+(?:\.\d+)+\w*)"
#: Where the version is repeated, and how many times at least.
PLACES = {
    "java-shim/pom.xml": (rf"<artifactId>tierberg-rsm</artifactId>\s*<version>{_NUMBER}<", 1),
    "docker-compose.yml": (rf"image: tierberg:{_NUMBER}", 2),
    "README.md": (rf"tierberg-rsm-{_NUMBER}\.jar", 1),
    "docs/first-topic.md": (rf"tierberg-(?:rsm-)?{_NUMBER}(?:\.jar|-py3)", 2),
    "CHANGELOG.md": (rf"\A# Changes\s+## {_NUMBER}", 1),
    "uv.lock": (rf'name = "tierberg"\nversion = "{_NUMBER}"', 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_version_is_that_of_pyproject(place: str) -> None:
    pattern, times = PLACES[place]
    found = re.findall(pattern, (ROOT / place).read_text(encoding="utf-8"))
    assert len(found) >= times
    assert set(found) == {VERSION}


def test_the_protocol_is_that_of_the_bridge() -> None:
    shim = (ROOT / "java-shim/src/main/java/io/tierberg/rsm/BridgeMethods.java").read_text(encoding="utf-8")
    contract = (ROOT / "proto/tierberg/v1/rsm.proto").read_text(encoding="utf-8")
    assert re.findall(r'PROTOCOL_VERSION = "(\d+)"', shim) == [str(PROTOCOL_VERSION)]
    assert set(re.findall(r"`tierberg-protocol: (\d+)`", contract)) == {str(PROTOCOL_VERSION)}
