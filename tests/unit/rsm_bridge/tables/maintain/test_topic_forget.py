"""`tierberg topic forget`: only what Kafka says to be gone goes, all of it, whatever dies in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter.index.codec import decode_directory
from converter.types import SegmentMetadata
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import FORGET_WATCH_SECONDS, LIST_PAGE_KEYS
from rsm_bridge.metrics.progress.facts import KafkaFacts
from rsm_bridge.serving.copy.attempt import custom_metadata
from rsm_bridge.status.store.facts import head_of, stored_topic
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.tables.maintain.topic_forget import AskKafka, Wish, forget
from tests.support.killed import KilledError, die_at
from tests.support.status_facts import BROKER, kafka, kafka_topic
from tests.worlds.maintain_support import World, make_world, published
from tests.worlds.status_support import read_topics
from tierberg.cli import app

#: Another topic of the store that Kafka has: it is the right cluster.
OTHER = "cd" * 16


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three segments in the table, one that is not, and another topic that lives."""
    made = make_world(tmp_path)
    published(made)
    made.copy()
    made.copy(partition=1)
    other = World(made.store, made.catalog, topic="other", topic_id=bytes.fromhex(OTHER))
    published(other, (2,))
    return made


@pytest.fixture(autouse=True, params=[LIST_PAGE_KEYS, 2], ids=["one page", "pages"])
def listing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topic with more than a page of indexes a publisher's first run looks at what is new alone."""
    monkeypatch.setattr("rsm_bridge.storage.segments.listing.LIST_PAGE_KEYS", request.param)


def says(*topics: tuple[str, str], **changes: object) -> KafkaFacts:
    named = [kafka_topic(topic=name, topic_id=topic_id) for name, topic_id in topics]
    return replace(kafka(*named), **changes)  # type: ignore[arg-type]


WITHOUT = says(("other", OTHER))


Ask = AskKafka | KafkaFacts


def run(
    folder: Path,
    ask: Ask = WITHOUT,
    *,
    topic: str = "orders",
    topic_id: str | None = None,
    clusters: Collection[str] = (),
    yes: bool = True,
    wait: Callable[[float], None] = lambda _: None,
) -> str:
    """The command; `ask`: what Kafka says, or how it is asked."""
    said: list[str] = []
    asked: AskKafka = (lambda _: ask) if isinstance(ask, KafkaFacts) else ask
    forget(open_backend(None, folder), Wish(topic, topic_id, yes, frozenset(clusters)), asked, said.append, wait)
    return "\n".join(said)


def live(world: World) -> int:
    return sum(known.live for known in world.observe().segments)


def test_without_yes_it_only_says_what_would_go(world: World, tmp_path: Path) -> None:
    told = run(tmp_path, yes=False)
    assert "5 segments of 2 partitions with 15 rows are left" in told
    assert told.endswith("nothing was changed: --yes deletes it")
    assert live(world) == 5
    assert world.offsets() == list(range(9))


def test_what_is_left_goes_and_another_topic_stays(world: World, tmp_path: Path) -> None:
    waited: list[float] = []
    assert "5 segments deleted" in run(tmp_path, wait=waited.append)
    assert waited == [FORGET_WATCH_SECONDS]
    assert live(world) == 0
    assert world.offsets() == []
    other = World(world.store, world.catalog, topic="other", topic_id=bytes.fromhex(OTHER))
    assert live(other) == 1
    assert len(other.offsets()) == 2


def test_again_changes_nothing(world: World, tmp_path: Path) -> None:
    run(tmp_path)
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "store" / "index").rglob("*") if path.is_file())
    assert "0 segments deleted, 0 files left the table" in run(tmp_path)
    after = sorted(path.stat().st_mtime_ns for path in (tmp_path / "store" / "index").rglob("*") if path.is_file())
    assert before == after
    assert world.offsets() == []


@pytest.mark.parametrize("point", ["store-put", "before-commit", "before-swap", "after-swap"])
@pytest.mark.parametrize("times", [1, 3])
def test_whatever_dies_in_between_the_next_one_ends_it(world: World, tmp_path: Path, point: str, times: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        die_at(patched, point, times if point == "store-put" else 1)
        with pytest.raises(KilledError):
            run(tmp_path)
    run(tmp_path)
    assert live(world) == 0
    assert world.offsets() == []


def withdrawn_with_rows(world: World) -> None:
    """The newest segments of both partitions were published, their replies lost, and then the topic was deleted."""
    again, other = world.copy(), world.copy(partition=1)
    world.publish()
    for segment in (again, other):
        world.withdraw(segment)
    world.copy_range(again.start_offset, again.end_offset)  # of one Kafka had made it again
    world.publish()


def test_rows_of_withdrawn_copies_go_too(world: World, tmp_path: Path) -> None:
    withdrawn_with_rows(world)
    assert world.offsets(1) == list(range(6))
    told = run(tmp_path)
    assert "6 segments and" in told
    assert "and 1 copy that Kafka withdrew deleted" in told
    assert "stay in the table" not in told
    assert (world.offsets(), world.offsets(1)) == ([], [])
    assert "0 segments deleted" in run(tmp_path)


def test_withdrawn_copies_alone_go_too(world: World, tmp_path: Path) -> None:
    """Kafka has deleted all that it knows; so it was at a topic whose only segment was withdrawn, too."""
    withdrawn_with_rows(world)
    world.delete(*[known_metadata(world, known) for known in world.observe().segments if known.live])
    world.publish()
    assert (world.offsets(), world.offsets(1)) == ([], [3, 4, 5])
    assert left_withdrawn(tmp_path) == 1
    run(tmp_path)
    assert world.offsets(1) == []
    assert left_withdrawn(tmp_path) == 0
    undone = CliRunner().invoke(app, ["undelete", "orders", "--data-dir", str(tmp_path)])
    assert undone.exit_code == 0, undone.output
    assert world.offsets(1) == list(range(6))


def known_metadata(world: World, known: KnownSegment) -> SegmentMetadata:
    """What Kafka sends when it deletes a segment that it knows."""
    directory = decode_directory(world.store.read(known.listed.key).data)
    return replace(directory.metadata, custom_metadata=custom_metadata(directory))


def left_withdrawn(folder: Path) -> int:
    """What `tierberg status` reads of it."""
    backend = open_backend(None, folder)
    (read,) = read_topics(backend.store, "orders", time.monotonic() + 20)
    return stored_topic(
        read, head_of(backend.catalog, backend.namespace), backend.store, backend.settings
    ).left_withdrawn


def test_it_can_be_undone_while_the_grace_lasts(world: World, tmp_path: Path) -> None:
    run(tmp_path)
    undone = CliRunner().invoke(app, ["undelete", "orders", "--data-dir", str(tmp_path)])
    assert undone.exit_code == 0, undone.output
    assert world.offsets() == list(range(12))
    assert world.offsets(1) == [0, 1, 2]
    assert "5 segments deleted" in run(tmp_path)  # and that by the same command
    assert world.offsets() == []


def test_a_topic_created_again_under_its_name_is_safe(world: World, tmp_path: Path) -> None:
    again = World(world.store, world.catalog)
    published(again)
    run(tmp_path, says(("other", OTHER), ("orders", again.topic_id.hex())))
    assert (live(world), live(again)) == (0, 3)
    assert again.offsets() == list(range(9))
    with pytest.raises(BridgeError, match="Kafka still has topic orders"):
        run(tmp_path, says(("orders", again.topic_id.hex())), topic_id=again.topic_id.hex())


def test_kafka_must_say_it_twice(world: World, tmp_path: Path) -> None:
    """A broker that has just started knows no topic for a moment."""
    answers = [WITHOUT, says(("other", OTHER), ("orders", world.topic_id.hex()))]
    with pytest.raises(BridgeError, match="Kafka still has"):
        run(tmp_path, lambda _: answers.pop(0))
    assert live(world) == 5


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (says(("other", OTHER), hidden=frozenset({"orders"})), "may this client see it"),
        (says(("stranger", "ef" * 16)), "no topic of this store that would tell"),
        (KafkaFacts({}, BROKER), "no topic of this store that would tell"),
        (says(("other", OTHER), broker_config={"remote.log.storage.system.enable": "false"}), "does not tier"),
        (says(("other", OTHER), broker_config={"remote.log.storage.manager.class.name": "x.Y"}), "does not tier"),
    ],
)
def test_what_is_no_proof_is_refused(world: World, tmp_path: Path, facts: KafkaFacts, words: str) -> None:
    with pytest.raises(BridgeError, match=words):
        run(tmp_path, facts)
    assert live(world) == 5


def test_the_last_topics_of_a_cluster_go_when_a_person_names_it(world: World, tmp_path: Path) -> None:
    """Kafka has nothing that says which cluster it is. The topic's id, which names no cluster, is no word for it."""
    empty = KafkaFacts({}, BROKER)
    for named in (None, world.topic_id.hex()):
        with pytest.raises(
            BridgeError, match=r"Only if cluster test is this one, or is gone for good: --cluster test$"
        ):
            run(tmp_path, empty, topic_id=named)
    with pytest.raises(BridgeError, match="cluster west: what the store has of orders is of cluster test"):
        run(tmp_path, empty, clusters=["west"])
    assert live(world) == 5
    assert "5 segments deleted" in run(tmp_path, empty, clusters=["test"])
    assert live(world) == 0


def test_damage_of_another_topic_stops_nothing(world: World, tmp_path: Path) -> None:
    """Nor is more of it read than says whose it is."""
    for path in sorted((tmp_path / "store").rglob(f"*{OTHER}/*/*")):
        path.write_bytes(b"damaged")
    epochs = CliRunner().invoke(app, ["leader-epochs", "orders", "1", "--data-dir", str(tmp_path)])
    assert epochs.exit_code == 0, epochs.output
    with pytest.raises(BridgeError, match="would tell which cluster it is"):
        run(tmp_path)  # the only topic that says whose this Kafka is
    assert "5 segments deleted" in run(tmp_path, clusters=["test"])
    assert live(world) == 0


def test_nobody_to_ask_is_an_error(world: World, tmp_path: Path) -> None:
    asked = CliRunner().invoke(app, ["topic", "forget", "orders", "--data-dir", str(tmp_path), "--yes"])
    assert asked.exit_code == 2
    assert "only Kafka knows" in asked.output
    away = CliRunner().invoke(
        app, ["topic", "forget", "orders", "--data-dir", str(tmp_path), "--yes", "--bootstrap-server", "127.0.0.1:1"]
    )
    assert away.exit_code == 3
    assert "could not be asked" in away.output
    assert live(world) == 5


def test_an_unknown_topic_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(BridgeError, match="nothing of a topic"):
        run(tmp_path, topic="nothing")
    with pytest.raises(BridgeError, match="nothing of a topic"):
        run(tmp_path, topic_id="00" * 16)
