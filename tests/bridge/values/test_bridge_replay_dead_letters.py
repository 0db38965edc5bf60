"""`tierberg replay-dead-letters` beside a running bridge: rows that decode now get columns, and nothing else changes.

The registry is in the test's hands. Whatever becomes of the rows, Kafka gets its bytes back.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from typer.testing import CliRunner

from converter.parquet.columns import ERROR
from converter.values.model import ValueProblem, error_codes
from iceberg_catalog import failpoints
from iceberg_catalog.commit import value_counts
from iceberg_catalog.commit.commit import commit
from iceberg_catalog.commit.head import LiveFiles
from rsm_bridge.errors import BridgeError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.backend import Backend, open_backend
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain import replay as replay_of
from rsm_bridge.tables.maintain import replay_topics, requeue_topics
from rsm_bridge.tables.maintain.dead_letters import files_with_errors
from rsm_bridge.tables.maintain.maintain import open_maintenance
from rsm_bridge.values.typed.schemas import ColumnsWaitError
from tests.bridge.values.test_bridge_typed import ORDER, WIDER, avro, columns_of, framed, rows_of, shown
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder, Record
from tests.support.killed import KilledError
from tests.support.registry_answers import Schemas
from tests.support.shim_client import Segment, ShimClient, segment_of
from tests.worlds.catalog_support import Place
from tests.worlds.foreign_support import delete_by_position
from tierberg.cli import app

Row = dict[str, Any]
GOOD = framed(1, avro(ORDER, {"id": 7, "who": "x"}))
RULES = [
    {"pattern": "late_rule", "mode": "verbatim"},
    {"pattern": "strict", "value_format": "avro", "incompatible": "dead-letter"},
    {"pattern": "narrow", "value_format": "json", "incompatible": "dead-letter"},
    {"pattern": "keyed", "value_format": "avro", "key_format": "avro"},
    {"pattern": "proven", "value_format": "avro", "key_format": "avro", "value_bytes": "proven"},
    {"pattern": ".*", "value_format": "avro"},
]


@dataclass
class KeyedLog(LogBuilder):
    """Records have these keys, one after the other."""

    keys: list[bytes | None] = field(default_factory=list)

    def records(self, values: Any, **options: Any) -> list[Record]:
        return [replace(record, key=self.keys.pop(0)) for record in super().records(values, **options)]


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    found = Schemas()
    found.add(1, "orders-value", {"schema": json.dumps(ORDER)})
    return found


@pytest.fixture(scope="module")
def registry(schemas: Schemas) -> Iterator[dict[str, Any]]:
    with answering() as server:
        server.answers = schemas.answer
        yield {"url": server.uri, "request_timeout": "1s"}


@pytest.fixture(scope="module")
def bridge(registry: dict[str, Any], bridge_folder: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(bridge_folder, topics=RULES, schema_registry=registry)) as running:
        yield running


@dataclass
class Command:
    """The command, as a process beside the bridge would run it."""

    folder: Path
    registry: dict[str, Any]

    def backend(self, topics: Sequence[dict[str, Any]] = (), **settings: Any) -> Backend:
        changed = test_settings(
            self.folder, topics=[*topics, *RULES], schema_registry=self.registry, generation=len(topics), **settings
        )
        return replace(open_backend(None, self.folder), settings=changed)

    def run(self, topic: str, backend: Backend | None = None, *, dry_run: bool = False) -> list[str]:
        said: list[str] = []
        replay_topics.replay(backend or self.backend(), topic, dry_run=dry_run, say=said.append)
        return said


@pytest.fixture
def command(registry: dict[str, Any], bridge_folder: Path, bridge: Running) -> Command:
    assert bridge.address
    return Command(bridge_folder, registry)


def copied(shim: ShimClient, topic: str, values: Sequence[bytes | None], first: int = 0) -> Segment:
    log = LogBuilder(next_offset=first)
    for start in range(0, len(values), 3):
        log.batch(values[start : start + 3])
    return stored(shim, topic, log)


def stored(shim: ShimClient, topic: str, log: LogBuilder) -> Segment:
    segment = shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16]))
    assert shim.fetch(segment) == log.data
    return segment


def wide(number: int, identity: int) -> bytes:
    """A value whose columns no table of these tests has before the schema is known."""
    return framed(number, avro(WIDER, {"id": identity, "paid": True, "at": {"city": "Trier"}}))


def codes(rows: Sequence[Row]) -> list[str | None]:
    return [row[ERROR] and row[ERROR].partition(":")[0] for row in rows]


def only_changed(before: Sequence[Row], after: Sequence[Row], offsets: set[int]) -> None:
    """All other rows are as they were, new columns null; of these Kafka's own columns are."""
    assert [row["_kafka_offset"] for row in before] == [row["_kafka_offset"] for row in after]
    for old, new in zip(before, after, strict=True):
        names = [name for name in old if name.startswith("_kafka_") and name != ERROR]
        assert [old[name] for name in names] == [new[name] for name in names]
        if old["_kafka_offset"] not in offsets:
            assert {**dict.fromkeys(new), **old} == new


def snapshot_of(catalog: Catalog, topic: str) -> int:
    snapshot = catalog.load_table(("kafka", topic)).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def files_of(catalog: Catalog, topic: str) -> set[str]:
    return {task.file.file_path for task in catalog.load_table(("kafka", topic)).scan().plan_files()}


def counted(bridge: Running) -> float:
    """Dead letters of an unknown schema that the bridge's copies have met so far."""
    code = {"code": "unknown_schema"}
    return bridge.metrics.registry.get_sample_value("tierberg_dead_letters_total", code) or 0.0


def test_rows_whose_schema_is_registered_late(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command, bridge: Running
) -> None:
    topic, at_first = "unknown", counted(bridge)
    dead = [GOOD, wide(50, 1), None, framed(1, b"\x0e\x02\x10"), wide(50, 2), GOOD]
    segments = [copied(shim, topic, dead), copied(shim, topic, [GOOD] * 4, 6), copied(shim, topic, [wide(50, 3)], 10)]
    before = shown(catalog, topic, 11)
    told = [None, "unknown_schema", None, "undecodable", "unknown_schema", None, *[None] * 4, "unknown_schema"]
    assert codes(before) == told
    assert counted(bridge) - at_first == 3
    head, files = snapshot_of(catalog, topic), files_of(catalog, topic)

    left = ["unknown:   undecodable: 1", "unknown:   unknown_schema: 3"]
    first = "unknown: 2 of 3 files have dead letters; "
    assert command.run(topic) == [first + "0 rows decoded again, in 0 new files; 4 rows stay", *left]
    assert snapshot_of(catalog, topic) == head

    schemas.add(50, "unknown-value", {"schema": json.dumps(WIDER)})
    location = catalog.load_table(("kafka", topic)).metadata_location
    would = first + "3 rows would be decoded again (dry run); 1 rows stay"
    assert command.run(topic, dry_run=True) == [would, left[0]]
    assert catalog.load_table(("kafka", topic)).metadata_location == location

    assert command.run(topic) == [first + "3 rows decoded again, in 2 new files; 1 rows stay", left[0]]
    after = rows_of(catalog, topic)
    only_changed(before, after, {1, 4, 10})
    assert codes(after) == [None, None, None, "undecodable", *[None] * 7]
    assert after[3][ERROR] == before[3][ERROR]
    wider = [{"id": n, "who": None, "paid": True, "at": {"city": "Trier"}} for n in (1, 2, 3)]
    assert [columns_of(after[offset]) for offset in (1, 4, 10)] == wider
    assert len(files_of(catalog, topic)) == 3
    assert len(files_of(catalog, topic) & files) == 1
    summaries = [item.summary for item in catalog.load_table(("kafka", topic)).snapshots()[-2:]]
    assert [summary and summary.operation.value for summary in summaries] == ["overwrite", "overwrite"]
    for segment in segments:
        assert shim.fetch(segment) == segment.data

    head = snapshot_of(catalog, topic)
    again = "unknown: 1 of 3 files have dead letters; 0 rows decoded again, in 0 new files; 1 rows stay"
    assert command.run(topic) == [again, left[0]]
    assert snapshot_of(catalog, topic) == head
    copied(shim, topic, [GOOD], 11)
    assert rows_before(shown(catalog, topic, 12), 11) == after


def rows_before(rows: Sequence[Row], offset: int) -> list[Row]:
    return [row for row in rows if row["_kafka_offset"] < offset]


@pytest.mark.parametrize("late", [False, True])
def test_rows_that_an_engine_has_deleted_stay_deleted(
    shim: ShimClient,
    catalog: Catalog,
    schemas: Schemas,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    late: bool,
) -> None:
    """Its delete file would not apply to a file that took the place of the one it names, also where it comes late."""
    topic, number = ("beside_late", 190) if late else ("beside", 191)
    copied(shim, topic, [wide(number, 1), GOOD])
    shown(catalog, topic, 2)
    schemas.add(number, f"{topic}-value", {"schema": json.dumps(WIDER)})
    place = Place(catalog, catalog.load_table(("kafka", topic)), Path("/unused"))
    (path,) = files_of(catalog, topic)
    engine = [path]

    def slow(*request: Any, **options: Any) -> Any:
        if engine:
            delete_by_position(place, engine.pop(), [1])
        return commit(*request, **options)

    if late:
        monkeypatch.setattr(replay_of, "commit", slow)
    else:
        delete_by_position(place, engine.pop(), [1])
        first = f"{topic}: 1 of 1 files have dead letters; 0 rows would be decoded again (dry run); 0 rows stay"
        assert command.run(topic, dry_run=True)[0] == first
    said = command.run(topic)
    assert said[0] == f"{topic}: 1 of 1 files have dead letters; 0 rows decoded again, in 0 new files; 0 rows stay"
    assert said[1].startswith(f"{topic}: 1 of them stay as they are, for their partitions have delete files of others")
    assert [row["_kafka_offset"] for row in rows_of(catalog, topic)] == [0]
    assert files_of(catalog, topic) == {path}


def test_rows_whose_schema_was_unusable(shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command) -> None:
    schemas.by_id[51] = {"schema": '{"type": "record"}'}
    copied(shim, "unusable", [GOOD, wide(51, 8)])
    before = shown(catalog, "unusable", 2)
    assert codes(before) == [None, "unusable_schema"]
    schemas.by_id[51] = {"schema": json.dumps(WIDER)}
    command.run("unusable")
    after = rows_of(catalog, "unusable")
    only_changed(before, after, {1})
    assert (after[1]["id"], after[1]["paid"], after[1][ERROR]) == (8, True, None)


def test_rows_that_the_rule_refused(shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command) -> None:
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    schemas.add(52, "strict-value", {"schema": json.dumps(other)})
    copied(shim, "strict", [GOOD, framed(52, avro(other, {"id": "x"}))])
    before = shown(catalog, "strict", 2)
    assert codes(before) == [None, "incompatible_schema"]
    assert "0 rows decoded again" in command.run("strict")[0]
    lenient = command.backend([{"pattern": "strict", "value_format": "avro"}])
    assert "1 rows would be decoded" in command.run("strict", lenient, dry_run=True)[0]
    assert "1 rows decoded again" in command.run("strict", lenient)[0]
    after = rows_of(catalog, "strict")
    only_changed(before, after, {1})
    assert [(row["id"], row["id__v2"]) for row in after] == [(7, None), (None, "x")]


def test_values_that_did_not_fit_their_columns(shim: ShimClient, catalog: Catalog, command: Command) -> None:
    copied(shim, "narrow", [b'{"n": 1, "who": "a"}'])
    shown(catalog, "narrow", 1)
    copied(shim, "narrow", [b'{"n": 1.5, "who": "b"}', b"no json", b'{"n": 2}'], first=1)
    before = shown(catalog, "narrow", 4)
    assert codes(before) == [None, "type_mismatch", "undecodable", None]
    assert "0 rows decoded again" in command.run("narrow")[0]
    lenient = command.backend([{"pattern": "narrow", "value_format": "json"}])
    assert "1 rows would be decoded" in command.run("narrow", lenient, dry_run=True)[0]
    assert "tierberg.value-schema__v2" not in catalog.load_table(("kafka", "narrow")).properties
    assert "1 rows decoded again" in command.run("narrow", lenient)[0]
    after = rows_of(catalog, "narrow")
    only_changed(before, after, {1})
    assert [(row["n"], row["n__v2"], row["who"]) for row in after[:2]] == [(1, None, "a"), (None, 1.5, "b")]


def test_dead_keys(shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command) -> None:
    """A row may gain its value's columns while its key stays dead; what a part had it keeps."""
    key, late = framed(1, avro(ORDER, {"id": 1, "who": "k"})), framed(60, b"\x02k")
    log = KeyedLog(keys=[key, late, key, b"bare", late])
    log.batch([GOOD, GOOD, wide(61, 5), wide(61, 6), None])
    segment = stored(shim, "keyed", log)
    before = shown(catalog, "keyed", 5)
    unknown = "key_unknown_schema"
    assert codes(before) == [None, unknown, "unknown_schema", "unknown_schema", unknown]
    schemas.add(61, "keyed-value", {"schema": json.dumps(WIDER)})

    no_keys = command.backend([{"pattern": "keyed", "value_format": "avro"}])
    decoded = "keyed: 1 of 1 files have dead letters; {} rows decoded again, in {} new files; {} rows stay"
    stay = ["keyed:   key_not_wire_format: 1", "keyed:   key_unknown_schema: 2"]
    assert command.run("keyed") == [decoded.format(1, 1, 3), *stay]
    middle = rows_of(catalog, "keyed")
    only_changed(before, middle, {2, 3})
    assert codes(middle) == [None, unknown, None, "key_not_wire_format", unknown]
    assert [row["id"] for row in middle] == [7, 7, 5, 6, None]
    assert command.run("keyed", no_keys) == [decoded.format(0, 0, 3), *stay]
    assert rows_of(catalog, "keyed") == middle

    schemas.add(60, "keyed-key", {"schema": json.dumps({**ORDER, "fields": [{"name": "who", "type": "string"}]})})
    assert command.run("keyed") == [decoded.format(2, 1, 1), stay[0]]
    after = rows_of(catalog, "keyed")
    only_changed(middle, after, {1, 4})
    assert [row["_key"] and row["_key"]["who"] for row in after] == ["k", "k", "k", None, "k"]
    assert shim.fetch(segment) == log.data


def test_values_that_are_columns_alone_stay_when_their_key_decodes(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command
) -> None:
    """They were taken for tombstones as soon as another row of the file had a dead value."""
    log = KeyedLog(keys=[framed(70, b"\x02k"), framed(1, avro(ORDER, {"id": 1, "who": "k"})), framed(70, b"\x02k")])
    log.batch([GOOD, wide(71, 5), wide(71, 6)])
    segment = stored(shim, "proven", log)
    before = shown(catalog, "proven", 3)
    assert codes(before) == ["key_unknown_schema", "unknown_schema", "unknown_schema"]
    assert (before[0]["_kafka_value"], before[0]["id"]) == (None, 7)
    schemas.add(70, "proven-key", {"schema": json.dumps({**ORDER, "fields": [{"name": "who", "type": "string"}]})})
    command.run("proven")
    middle = rows_of(catalog, "proven")
    assert [(row["id"], row["who"], row["_key"] and row["_key"]["who"]) for row in middle] == [
        (7, "x", "k"),
        (None, None, "k"),
        (None, None, None),
    ]
    # The key of the second row has its columns, and keeps them under a rule that cannot decode it.
    schemas.add(71, "proven-value", {"schema": json.dumps(WIDER)})
    other = {"pattern": "proven", "value_format": "avro", "key_format": "json", "key_schema": {"from": "inferred"}}
    command.run("proven", command.backend([other]))
    after = rows_of(catalog, "proven")
    assert [(row["id"], row["_key"] and row["_key"]["who"]) for row in after[:2]] == [(7, "k"), (5, "k")]
    assert codes(after)[:2] == [None, None]
    assert shim.fetch(segment) == log.data


def test_a_registry_that_is_away_changes_nothing(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command, tmp_path: Path
) -> None:
    copied(shim, "away", [GOOD, wide(53, 1)])
    before = shown(catalog, "away", 2)
    head = snapshot_of(catalog, "away")
    schemas.fail = lambda _: (503, {"error_code": 50301, "message": "away"})
    try:
        with pytest.raises(ColumnsWaitError, match=r"away: .*run it again: .*503"):
            command.run("away")
        config = tmp_path / "tierberg.yaml"
        config.write_text(
            json.dumps({"data_dir": str(command.folder), "topics": RULES, "schema_registry": command.registry})
        )
        said = CliRunner().invoke(app, ["replay-dead-letters", "--topic", "away", "--config", str(config)])
    finally:
        schemas.fail = None
    assert said.exit_code == 3
    assert "tierberg: away: " in said.output
    assert (snapshot_of(catalog, "away"), rows_of(catalog, "away")) == (head, before)


def test_a_rule_without_types_and_a_topic_that_is_not_there(
    shim: ShimClient, catalog: Catalog, command: Command
) -> None:
    copied(shim, "untyped", [b"bare"])
    shown(catalog, "untyped", 1)
    (said,) = command.run("untyped", command.backend([{"pattern": "untyped"}]))
    assert said.startswith("untyped: dead letters in 1 files stay as they are: the topic's rule has no typed format")
    with pytest.raises(BridgeError, match="nothing of a topic nowhere"):
        command.run("nowhere")


def dying(step: str) -> Callable[..., None]:
    """Ends the command, which runs on this thread, at the step; the bridge goes on."""
    mine = threading.current_thread()

    def hit(point: str, about: str = "") -> None:
        if point == step and threading.current_thread() is mine:
            raise KilledError(f"killed at {step}, {about}")

    return hit


@pytest.mark.parametrize("step", ["derived-complete", "before-state", "before-swap", "after-swap"])
def test_a_crash_is_repaired_by_running_it_again(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic, number = f"crash-{step}", 70 + len(step)
    segment = copied(shim, topic, [GOOD, wide(number, 1), b"bare"])
    table = "crash_" + step.replace("-", "_")
    before = shown(catalog, table, 3)
    schemas.by_id[number] = {"schema": json.dumps(WIDER)}
    # A dead command holds the lease for its TTL; here nobody waits for it.
    monkeypatch.setattr(replay_topics, "leased", lambda *_: contextlib.nullcontext())
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", dying(step))
        with pytest.raises(KilledError):
            command.run(topic)
    only_changed(before, rows_of(catalog, table), {1})
    command.run(topic)
    after = rows_of(catalog, table)
    only_changed(before, after, {1})
    assert codes(after) == [None, None, "not_wire_format"]
    assert len(files_of(catalog, table)) == 1
    assert shim.fetch(segment) == segment.data


def test_a_lost_reply_and_a_lost_swap(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(shim, "lost", [GOOD, wide(54, 1)])
    copied(shim, "lost", [wide(54, 2)], 2)
    before = shown(catalog, "lost", 3)
    schemas.add(54, "lost-value", {"schema": json.dumps(WIDER)})
    backend = command.backend()
    send = backend.catalog.commit_table
    calls: list[int] = []

    def losing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:  # the first is the columns', this the first file's: somebody else is faster
            copied(shim, "lost", [GOOD], 3)
            shown(catalog, "lost", 4)
            return send(*arguments)
        send(*arguments)
        raise CommitFailedException("the reply was lost")

    monkeypatch.setattr(backend.catalog, "commit_table", losing)
    assert "2 rows decoded again, in 2 new files; 0 rows stay" in command.run("lost", backend)[0]
    after = rows_of(catalog, "lost")
    assert len(calls) == 4
    only_changed(before, rows_before(after, 3), {1, 2})
    assert [(row["id"], row[ERROR]) for row in after] == [(7, None), (1, None), (2, None), (7, None)]
    assert len(files_of(catalog, "lost")) == 3


def test_two_at_once(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease keeps them apart; without it the swap does."""
    copied(shim, "twice", [GOOD, wide(55, 1)])
    before = shown(catalog, "twice", 2)
    schemas.add(55, "twice-value", {"schema": json.dumps(WIDER)})
    monkeypatch.setattr(replay_topics, "leased", lambda *_: contextlib.nullcontext())
    backend = command.backend()
    send = backend.catalog.commit_table
    others: list[list[str]] = []

    def slow(*arguments: Any) -> Any:
        if arguments[2] and not others:
            others.append(command.run("twice"))
        return send(*arguments)

    monkeypatch.setattr(backend.catalog, "commit_table", slow)
    said = command.run("twice", backend)
    assert "1 rows decoded again, in 1 new files" in others[0][0]
    assert said[-1] == "twice: 1 files left the table meanwhile; run it again if others have their rows"
    after = rows_of(catalog, "twice")
    only_changed(before, after, {1})
    assert codes(after) == [None, None]


def test_merges_go_on_and_kafka_reads_what_it_wrote(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, command: Command
) -> None:
    segments = [copied(shim, "merged", [GOOD, wide(56, n), b"bare"], 3 * n) for n in range(4)]
    before = shown(catalog, "merged", 12)
    schemas.add(56, "merged-value", {"schema": json.dumps(WIDER)})
    merging = {"small_mib": 1, "target_mib": 2, "files_min": 3, "age": "0s"}
    backend = command.backend(merge=merging)

    def merge() -> int:
        tally = Tally()
        context, topic_id = table_context(backend.settings, backend.store), segments[0].topic_id
        open_maintenance(backend.settings, backend.store, backend.catalog, topic_id, context).run(tally)
        return tally.merged

    assert merge() == 4
    assert "4 rows decoded again, in 1 new files; 4 rows stay" in command.run("merged")[0]
    segments += [copied(shim, "merged", [GOOD], offset) for offset in (12, 13)]
    shown(catalog, "merged", 14)
    assert merge() == 3
    after = rows_of(catalog, "merged")
    only_changed(before, rows_before(after, 12), {1, 4, 7, 10})
    assert codes(after) == [*[None, None, "not_wire_format"] * 4, None, None]
    merge()
    for segment in segments:
        assert shim.fetch(segment) == segment.data


def test_files_without_counts_are_looked_into(
    shim: ShimClient, catalog: Catalog, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(shim, "counted", [GOOD, b"bare"])
    copied(shim, "counted", [GOOD], 2)
    shown(catalog, "counted", 3)
    backend = command.backend()
    head = LiveFiles().read(backend.catalog.load_table(("kafka", "counted")))
    found = files_with_errors(backend.store, head)
    assert [file.first for file in found] == [0]
    monkeypatch.setattr(value_counts, "_values", lambda *_: None)
    assert files_with_errors(backend.store, head) == found


def test_requeued_segments_of_a_typed_topic_get_their_columns(
    shim: ShimClient, catalog: Catalog, command: Command
) -> None:
    segment = copied(shim, "late_rule", [GOOD, b"bare", None])
    assert rows_of(catalog, "late_rule") == []
    said: list[str] = []
    typed = command.backend([{"pattern": "late_rule", "value_format": "avro"}])
    requeue_topics.requeue(typed, "late_rule", dry_run=False, say=said.append)
    assert said[0].startswith("late_rule: 1 segments have 3 rows")
    rows = rows_of(catalog, "late_rule")
    assert [row["id"] for row in rows] == [7, None, None]
    assert codes(rows) == [None, "not_wire_format", None]
    assert shim.fetch(segment) == segment.data


def test_codes_are_counted() -> None:
    errors = pa.array([None, "undecodable: a: b", "key_undecodable: c", "undecodable: d", "invalid_utf8"], pa.string())
    assert error_codes(errors) == {"undecodable": 2, "key_undecodable": 1, "invalid_utf8": 1}
    assert error_codes(errors[:1]) == {}


def test_operators_find_every_code() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("\n## Dead letters\n")[2].partition("\n## ")[0]
    listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert listed == {problem.value for problem in ValueProblem}
