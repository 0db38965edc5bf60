"""What the broker is given: one jar, pure Java, with nothing of Kafka's in it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

DIST = Path(__file__).parents[3] / "java-shim" / "target" / "dist"


@pytest.fixture(scope="module")
def names() -> list[str]:
    jars = list(DIST.glob("*.jar"))
    if not jars:
        pytest.skip("the shim is not built: mvn -f java-shim/pom.xml package")
    assert len(jars) == 1
    with zipfile.ZipFile(jars[0]) as jar:
        assert jar.testzip() is None
        return jar.namelist()


def test_it_holds_the_plugin_and_its_grpc(names: list[str]) -> None:
    assert "io/tierberg/rsm/TierbergRemoteStorageManager.class" in names
    assert "io/grpc/netty/NettyChannelBuilder.class" in names


def test_no_native_library(names: list[str]) -> None:
    assert [name for name in names if re.search(r"\.(so|dll|dylib|jnilib|a)$|META-INF/native/", name)] == []


def test_nothing_the_broker_brings_itself(names: list[str]) -> None:
    assert [name for name in names if name.startswith(("org/apache/kafka/", "org/slf4j/", "org/apache/log4j/"))] == []


def lacking(names: list[str], bundled: str, texts: dict[str, str]) -> list[str]:
    """Folders of bundled classes without a licence text, and why."""
    listed = {}
    for line in bundled.splitlines():
        if not line.startswith("#"):
            folder, project, named = (part.strip() for part in line.split("|"))
            listed[folder] = (project, [file.strip() for file in named.split(",")])
    folders = {name.rpartition("/")[0] + "/" for name in names if name.endswith(".class")}
    found = []
    for folder in sorted(folder for folder in folders if not folder.startswith("io/tierberg/rsm/")):
        owners = [owner for owner in listed if folder.startswith(owner)]
        if not owners:
            found.append(f"{folder} is in no line of bundled.txt")
            continue
        project, files = listed[owners[0]]
        found += [f"{folder}: no text in {file}" for file in files if len(texts.get(file, "")) < 1000]
        if project not in texts.get("META-INF/NOTICE", ""):
            found.append(f"{folder}: {project} is not in META-INF/NOTICE")
    return found


def test_every_bundled_package_has_its_licence_text(names: list[str]) -> None:
    with zipfile.ZipFile(next(iter(DIST.glob("*.jar")))) as jar:
        texts = {
            name: jar.read(name).decode()
            for name in names
            if name.startswith(("META-INF/licenses/", "META-INF/LICENSE", "META-INF/NOTICE")) and name[-1] != "/"
        }
    bundled = texts.get("META-INF/licenses/bundled.txt", "")
    assert lacking(names, bundled, texts) == []
    assert "Apache License" in texts["META-INF/LICENSE"]
    # The check itself: a library that somebody adds, and a text that is lost.
    assert lacking(["org/new/Thing.class"], bundled, texts) == ["org/new/ is in no line of bundled.txt"]
    assert lacking(["com/google/protobuf/A.class"], bundled, {**texts, "META-INF/licenses/protobuf.txt": ""})


def test_service_files_are_merged(names: list[str]) -> None:
    with zipfile.ZipFile(next(iter(DIST.glob("*.jar")))) as jar:
        resolvers = jar.read("META-INF/services/io.grpc.NameResolverProvider").decode()
        balancers = jar.read("META-INF/services/io.grpc.LoadBalancerProvider").decode()
    assert "DnsNameResolverProvider" in resolvers
    assert "PickFirstLoadBalancerProvider" in balancers
    assert len(names) == len(set(names))
