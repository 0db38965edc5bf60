"""What the broker is given: one jar, pure Java, with nothing of Kafka's in it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

DIST = Path(__file__).parents[2] / "java-shim" / "target" / "dist"


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


def test_service_files_are_merged(names: list[str]) -> None:
    with zipfile.ZipFile(next(iter(DIST.glob("*.jar")))) as jar:
        resolvers = jar.read("META-INF/services/io.grpc.NameResolverProvider").decode()
        balancers = jar.read("META-INF/services/io.grpc.LoadBalancerProvider").decode()
    assert "DnsNameResolverProvider" in resolvers
    assert "PickFirstLoadBalancerProvider" in balancers
    assert len(names) == len(set(names))
