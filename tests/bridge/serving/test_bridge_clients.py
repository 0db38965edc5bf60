"""`tls.clients` over real TLS: who may read, copy and delete for which cluster, and what a refusal looks like."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from converter.types import IndexType
from rsm_bridge.config.client_rules import ClientRule
from rsm_bridge.errors import BridgeError, SettingsError
from rsm_bridge.serving.access import caller, names_of
from rsm_bridge.serving.service import Running
from rsm_bridge.serving.wire.messages import segment_metadata
from rsm_bridge.status.gather import Wanted, gather
from rsm_bridge.storage.keys import index_key, index_prefix
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.segments.topic_owners import TopicOwners
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.certificates import Authority
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

RULES: list[dict[str, Any]] = [
    {"names": ["CN=broker-1", "URI=spiffe://prod/kafka"], "clusters": ["prod"], "may": "write"},
    {"names": ["CN=broker-1"], "clusters": ["old"], "may": "read"},
    {"names": ["DNS=mirror.example"], "clusters": ["prod"], "may": "read"},
    {"names": ["CN=stage"], "clusters": ["stage"], "may": "write"},
    {"names": ["CN=admin"], "clusters": ["*"], "may": "write"},
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def bridge(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tls = {**authority.settings(), "clients": RULES}
    folder = tmp_path_factory.mktemp("bridge")
    with bridge_thread(test_settings(folder, tls=tls, reclaim_grace="1h")) as running:
        yield running


@pytest.fixture
def stored(bridge: Running, authority: Authority) -> Segment:
    """A segment of the cluster `prod`, of a topic of its own."""
    with ShimClient(bridge.address, authority.credentials("broker-1")) as shim:
        return shim.copied(segment_of(LogBuilder().fill(2), cluster="prod", topic_id=uuid.uuid4().bytes))


def calls(shim: ShimClient, segment: Segment) -> dict[str, Callable[[], object]]:
    return {
        "copy": lambda: shim.copy(replace(segment, segment_id=uuid.uuid4().bytes, custom_metadata=b"")),
        "fetch": lambda: shim.fetch(segment),
        "fetch_index": lambda: shim.fetch_index(segment, IndexType.OFFSET),
        "delete": lambda: shim.delete(segment),
    }


def refused(call: Callable[[], object]) -> ShimError:
    with pytest.raises(ShimError) as failed:
        call()
    assert (failed.value.code, failed.value.kind) == (grpc.StatusCode.PERMISSION_DENIED, "not_allowed")
    return failed.value


ALLOWED: list[tuple[dict[str, Any], set[str]]] = [
    ({"common_name": "broker-1"}, {"copy", "fetch", "fetch_index", "delete"}),
    ({"common_name": "x", "uris": ["spiffe://prod/kafka"]}, {"copy", "fetch", "fetch_index", "delete"}),
    ({"common_name": "admin"}, {"copy", "fetch", "fetch_index", "delete"}),
    ({"common_name": "x", "dns": ["a.example", "mirror.example"]}, {"fetch", "fetch_index"}),
    ({"common_name": "stage"}, set()),
    ({"common_name": "mirror.example"}, set()),  # the right name, of another kind
    ({"common_name": "broker-11"}, set()),
    ({"common_name": "BROKER-1"}, set()),
    ({"common_name": "x", "dns": ["*.example"]}, set()),
    ({"common_name": "x", "uris": ["spiffe://prod/kafka/2"]}, set()),
]


@pytest.mark.parametrize(
    ("names", "allowed"), ALLOWED, ids=[str(sorted(names.values(), key=str)) for names, _ in ALLOWED]
)
def test_each_call_by_its_certificate(
    names: dict[str, Any], allowed: set[str], bridge: Running, authority: Authority, stored: Segment
) -> None:
    with ShimClient(bridge.address, authority.credentials(**names)) as shim:
        for name, call in calls(shim, stored).items():
            if name in allowed:
                call()
            else:
                assert "tls.clients" in str(refused(call).details)
    if "delete" not in allowed:
        with ShimClient(bridge.address, authority.credentials("broker-1")) as shim:
            assert shim.fetch(stored) == stored.data


def test_another_clusters_name_in_the_request_opens_nothing(
    bridge: Running, authority: Authority, stored: Segment
) -> None:
    """The request says its cluster itself; the store says whose the topic is."""
    claimed = replace(stored, cluster="stage")
    with ShimClient(bridge.address, authority.credentials("stage")) as shim:
        for call in calls(shim, claimed).values():
            assert "'prod'" in str(refused(call).details)
        own = segment_of(LogBuilder().fill(1), cluster="stage", topic_id=uuid.uuid4().bytes)
        assert shim.fetch(shim.copied(own)) == own.data
    with ShimClient(bridge.address, authority.credentials("broker-1")) as shim:
        assert shim.fetch(stored) == stored.data


def test_whose_a_topic_is_survives_its_deletes_and_is_no_deleters_word(
    bridge: Running, authority: Authority, stored: Segment
) -> None:
    with ShimClient(bridge.address, authority.credentials("admin")) as shim:
        shim.delete(replace(stored, cluster="stage"))
        withdrawn = replace(stored, segment_id=uuid.uuid4().bytes, custom_metadata=b"", cluster="stage")
        shim.delete(withdrawn)
    assert TopicOwners(bridge.store).cluster_of(stored.topic_id) == "prod"
    assert TopicOwners(bridge.store).cluster_of(uuid.uuid4().bytes) is None


def test_one_sound_index_among_the_first_tells_whose_a_topic_is(
    bridge: Running, stored: Segment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalObjectStore(tmp_path)
    (sound,) = bridge.store.list_after(index_prefix(stored.topic_id))
    store.put_if_absent(sound.key, bridge.store.read(sound.key).data)
    # Two that are no indexes come before it: keys go by offsets, and its last one is 19.
    for offset in (1, 2):
        broken = segment_of(LogBuilder(next_offset=offset).fill(1), topic_id=stored.topic_id)
        assert store.put_if_absent(str(index_key(segment_metadata(broken.message()))), b"damage")
    monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_INDEXES_MAX", 2)
    owners = TopicOwners(store)
    with pytest.raises(BridgeError, match="none tells whose it is"):
        owners.cluster_of(stored.topic_id)
    monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_INDEXES_MAX", 3)
    assert (owners.cluster_of(stored.topic_id), owners.known(stored.topic_id)) == ("prod", "prod")


def test_tombstones_that_anybody_may_put_hide_no_owner(
    bridge: Running, authority: Authority, stored: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes for segments that never were, at keys before the first one that is."""
    with ShimClient(bridge.address, authority.credentials("broker-1")) as shim:
        for offset in range(10):
            never = segment_of(LogBuilder(next_offset=offset).fill(1), topic_id=stored.topic_id, cluster="prod")
            shim.delete(replace(never, end_offset=offset, start_offset=offset))
    assert TopicOwners(bridge.store).cluster_of(stored.topic_id) == "prod"
    monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_TOMBSTONES_MAX", 3)
    with pytest.raises(BridgeError, match="none tells whose it is"):
        TopicOwners(bridge.store).cluster_of(stored.topic_id)


def test_owners_that_are_remembered_have_a_limit(
    bridge: Running, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.TOPIC_OWNERS_MAX", 2)
    owners, topics = TopicOwners(bridge.store), [uuid.uuid4().bytes for _ in range(3)]
    with ShimClient(bridge.address, authority.credentials("broker-1")) as shim:
        for topic_id in topics:
            shim.copied(segment_of(LogBuilder().fill(1), cluster="prod", topic_id=topic_id))
            assert owners.cluster_of(topic_id) == "prod"
    assert [owners.known(topic_id) for topic_id in topics] == [None, "prod", "prod"]


def test_a_refusal_names_the_certificate_and_is_counted(bridge: Running, authority: Authority, stored: Segment) -> None:
    before = bridge.metrics.requests.labels("delete", "not_allowed")._value.get()
    with ShimClient(bridge.address, authority.credentials("nobody", dns=["n.example"])) as shim:
        error = refused(lambda: shim.delete(stored))
    assert "CN=nobody, DNS=n.example" in str(error.details)
    assert bridge.metrics.requests.labels("delete", "not_allowed")._value.get() == before + 1


@pytest.mark.parametrize(("uses", "served"), [(("client",), True), (("client", "server"), True), (("server",), False)])
def test_a_server_certificate_is_no_client(
    uses: tuple[Any, ...], served: bool, bridge: Running, authority: Authority, stored: Segment
) -> None:
    with ShimClient(bridge.address, authority.credentials("broker-1", uses=uses), timeout=10) as shim:
        if served:
            assert shim.fetch(stored) == stored.data
            return
        with pytest.raises(ShimError) as failed:
            shim.fetch(stored)
        assert failed.value.code is grpc.StatusCode.UNAVAILABLE


def test_without_rules_every_certificate_may_and_the_start_warns(authority: Authority, tmp_path: Path) -> None:
    with (
        capture_logs() as logs,
        bridge_thread(test_settings(tmp_path, tls=authority.settings())) as running,
        ShimClient(running.address, authority.credentials("anybody")) as shim,
    ):
        segment = segment_of(LogBuilder().fill(1))
        assert shim.fetch(shim.copied(segment)) == segment.data
        # `tierberg status` has no certificate: that it is refused one is an answer.
        settings = test_settings(tmp_path, tls=authority.settings())
        assert gather(settings, Wanted(None, running.address, 5)).bridge_problem is None
    assert any("set tls.clients" in line["event"] for line in logs if line["log_level"] == "warning")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"names": ["broker-1"]}, "names"),
        ({"names": []}, "names"),
        ({"clusters": []}, "clusters"),
        ({"may": "delete"}, "'read' or 'write'"),
        ({"may": None}, "may"),
    ],
)
def test_rules_that_say_nothing_are_refused(
    wrong: dict[str, Any], said: str, authority: Authority, tmp_path: Path
) -> None:
    rule = {"names": ["CN=a"], "clusters": ["c"], "may": "read", **wrong}
    with pytest.raises(SettingsError, match=said):
        test_settings(tmp_path, tls={**authority.settings(), "clients": [rule]})


def test_rules_need_certificates_to_go_by(authority: Authority, tmp_path: Path) -> None:
    tls = {**authority.settings(), "clients": RULES}
    with pytest.raises(SettingsError, match="set client_ca_file"):
        test_settings(tmp_path, tls={name: value for name, value in tls.items() if name != "client_ca_file"})
    with pytest.raises(SettingsError, match="clients"):
        test_settings(tmp_path, tls={**tls, "clients": []})


def test_rules_that_match_add_up() -> None:
    rules = [ClientRule.model_validate(rule) for rule in RULES]
    found = caller(rules, ("CN=broker-1", "DNS=mirror.example"), "ipv4:1.2.3.4:5")
    assert found.name == "CN=broker-1"
    assert (found.writes, found.reads) == (frozenset(("prod",)), frozenset(("prod", "old")))
    nobody = caller(rules, (), "ipv4:1.2.3.4:5")
    assert (nobody.name, nobody.clusters("read")) == ("ipv4:1.2.3.4:5", frozenset())
    assert caller(None, (), "unix:").clusters("write") is None
    assert caller(rules, ("CN=admin",), "").clusters("write") is None
    given = {"peer_dns": [b"a", b"b"], "x509_common_name": [b"\xff"], "peer_email": [b"x@y"]}
    assert names_of(given) == ("CN=\N{REPLACEMENT CHARACTER}", "DNS=a", "DNS=b")
