"""What judges a chaos run can fail: each kind of damage is planted and must be found."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from threading import Event

import pytest

from tests.chaos import verdicts
from tests.chaos.chaos_ledger import Acked, ChaosLedger
from tests.chaos.contents import digest
from tests.chaos.fault_acts import Acts
from tests.chaos.hard_links import HardLinks
from tests.chaos.plan import Fault, faults, known, lanes
from tests.chaos.record_batches import batches
from tests.chaos.served_bytes import served_bytes
from tests.chaos.servers import Servers
from tests.chaos.topics import Gate
from tests.chaos.true_log import True_, TrueLog
from tests.oracle.transactions import transaction_index
from tests.support.kafka_log import LogBuilder, Record, control_batch, encode_batch
from tierberg.stack.errors import StackError
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker

WHEN = 1_700_000_000_000


def row(number: int) -> True_:
    return True_(WHEN + number, bytes([number]) * 16, "plain")


RECORDS = {number: row(number) for number in range(6)} | {6: True_(WHEN, b"x" * 16, "aborted")}
RIGHT = [(number, WHEN + number, bytes([number]) * 16) for number in range(6)]


def kinds(verdict: verdicts.Verdict) -> set[str]:
    return set(verdict.wrong)


def test_a_right_table_passes() -> None:
    assert verdicts.table("t", RIGHT, RECORDS, (0, 7)).passed


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (RIGHT[1:], "lost"),
        ([*RIGHT, RIGHT[2]], "doubled"),
        ([*RIGHT, (9, WHEN, b"y" * 16)], "extra"),
        ([*RIGHT, (6, WHEN, b"x" * 16)], "aborted row"),
        ([*RIGHT[:5], (5, WHEN + 5, b"z" * 16)], "altered"),
        ([*RIGHT[:5], (5, WHEN + 6, RIGHT[5][2])], "altered"),
    ],
)
def test_damage_of_a_table_is_found(rows: list[tuple[int, int | None, bytes]], kind: str) -> None:
    assert kinds(verdicts.table("t", rows, RECORDS, (0, 7))) == {kind}


def test_rows_of_what_is_not_tiered_or_was_deleted_may_be_missing() -> None:
    assert verdicts.table("t", RIGHT[2:5], RECORDS, (2, 5)).passed
    assert verdicts.table("t", RIGHT, RECORDS, (2, 5)).passed


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (RIGHT[:3] + RIGHT[4:], "lost"),
        ([*RIGHT[:3], RIGHT[2], *RIGHT[3:]], "doubled or out of order"),
        ([*RIGHT, (8, WHEN, b"")], "extra"),
        ([*RIGHT[:5], (5, WHEN, RIGHT[5][2])], "altered"),
    ],
)
def test_damage_of_a_consumer_is_found(got: list[tuple[int, int, bytes]], kind: str) -> None:
    expected = {offset: (when, held) for offset, when, held in RIGHT}
    assert verdicts.consumed("c", "t", RIGHT, expected).passed
    assert kinds(verdicts.consumed("c", "t", got, expected)) == {kind}


def test_the_ledger_finds_what_was_told_and_is_not_so() -> None:
    told = {number: Acked(WHEN + number, bytes([number]) * 16, 0) for number in range(6)}
    assert verdicts.ledger("t", told, RECORDS, {}, 0).passed
    assert kinds(verdicts.ledger("t", told | {8: told[0]}, RECORDS, {}, 0)) == {"lost"}
    assert kinds(verdicts.ledger("t", told | {3: told[0]}, RECORDS, {}, 0)) == {"altered"}
    aborted = {6: Acked(WHEN, b"x" * 16, 1)}
    assert verdicts.ledger("t", aborted, RECORDS, {1: "aborted"}, 0).passed
    assert verdicts.ledger("t", aborted, RECORDS, {1: "unknown"}, 0).passed
    assert kinds(verdicts.ledger("t", aborted, RECORDS, {1: "committed"}, 0)) == {"ended otherwise"}


def test_only_an_election_that_may_lose_gives_an_offset_twice() -> None:
    ledger = ChaosLedger()
    for _ in range(2):
        ledger.acknowledge(("id", 0), 5, Acked(WHEN, b"", 0), "plain")
    assert kinds(verdicts.acknowledged_once(ledger.conflicts, 2, ())) == {"conflict"}
    assert verdicts.acknowledged_once(ledger.conflicts, 2, {"id"}).passed


def test_a_record_nobody_sent_is_found() -> None:
    told = {number: Acked(WHEN, b"", 0) for number in range(5)}
    assert kinds(verdicts.unexplained("t", told, {5: row(5)}, {}, ())) == {"extra"}
    assert verdicts.unexplained("t", told, {5: row(5)}, {row(5).digest: 1}, ()).passed
    twice = {5: row(5), 6: row(5)}
    assert kinds(verdicts.unexplained("t", told, twice, {row(5).digest: 1}, ())) == {"extra"}
    assert verdicts.unexplained("t", told, twice, {}, [row(5).digest]).passed


def test_a_log_that_begins_too_late_and_a_torn_transaction_are_found() -> None:
    assert verdicts.log_start("t", 50, 50).passed
    assert not verdicts.log_start("t", 51, 50).passed
    assert verdicts.log_start("t", 51, None).passed
    assert not verdicts.atomic({1: ["committed", "aborted"]}).passed


def linked(folder: Path, **files: bytes) -> TrueLog:
    for name, data in files.items():
        (folder / f"{name}.log").write_bytes(data)
    return TrueLog.read(sorted(folder.glob("*.log")), HardLinks(folder, {}).aborts)


def test_batches_are_taken_apart_as_they_were_put_together(tmp_path: Path) -> None:
    log = LogBuilder()
    for compressed in (False, True):
        log.batch([b"a", None, b"c" * 300], compressed=compressed)
    found = linked(tmp_path, one=log.data).visible(0, log.next_offset, committed=True)
    expected = {one.offset: (one.timestamp, digest(one.key, one.value, one.headers)) for one in log.committed}
    assert found == expected


def test_transactions_end_by_the_next_marker_of_their_producer(tmp_path: Path) -> None:
    log = LogBuilder()
    for producer, commit in ((1, True), (2, False), (1, False)):
        log.batch([b"x"], producer_id=producer, producer_epoch=0, base_sequence=0, attributes=0x10)
        log.batch([b"plain"])
        log.control(producer, commit=commit)
    log.batch([b"open"], producer_id=3, producer_epoch=0, base_sequence=0, attributes=0x10)
    states = [record.state for record in linked(tmp_path, one=log.data).records.values()]
    thrice = [("committed", "plain", "control"), ("aborted", "plain", "control"), ("aborted", "plain", "control")]
    assert states == [*itertools.chain(*thrice), "open"]


@pytest.mark.parametrize("knows", [True, False])
def test_an_abort_that_a_broker_has_no_entry_for_is_kafkas_matter(tmp_path: Path, knows: bool) -> None:
    """It rebuilt its log from the tier while the transaction was open. One that has the entry must not be excused."""
    log = LogBuilder()
    log.batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)
    log.control(1, commit=False)
    for broker in (1, 2):
        name = f"{broker}-{0:020}-{broker}"
        (tmp_path / f"{name}.log").write_bytes(log.data)
        if knows or broker == 2:
            (tmp_path / f"{name}.txnindex").write_bytes(transaction_index([(1, 0, 1)]) + b"half an entry")
    true = linked(tmp_path)
    assert true.forgotten == (set() if knows else {0})
    got = [(0, true.records[0].timestamp_ms, true.records[0].digest)]
    expected = true.visible(0, 2, committed=True)
    verdict = verdicts.consumed("c", "t", got, expected, true.forgotten)
    assert (kinds(verdict), sum(verdict.told.values())) == (({"extra"}, 0) if knows else (set(), 1))


def test_a_dead_leaders_tail_is_not_the_log(tmp_path: Path) -> None:
    old, new = LogBuilder(), LogBuilder()
    for builder in (old, new):
        builder.batch([b"both"] * 3)
    old.batch([b"dead"] * 5)
    new.epoch = 1
    new.batch([b"alive"] * 2)
    log = linked(tmp_path, one=old.data, two=new.data)
    assert log.visible(0, 99, committed=True).keys() == set(range(5))
    assert {batch.epoch for batch in log.valid} == {0, 1}


def test_other_bytes_gaps_and_unknown_batches_are_found(tmp_path: Path) -> None:
    log = LogBuilder().fill(4)
    true = linked(tmp_path, one=log.data)
    whole = (0, log.next_offset)
    assert served_bytes("t", batches(log.data), true, whole)[0].passed
    other = bytearray(log.data)
    other[-1] ^= 1
    assert kinds(served_bytes("t", batches(bytes(other)), true, whole)[0]) == {"other bytes"}
    part = b"".join(log.batches[:1] + log.batches[2:])
    assert kinds(served_bytes("t", batches(part), true, whole)[0]) == {"gap"}
    part = b"".join([*log.batches, log.batches[3]])
    assert kinds(served_bytes("t", batches(part), true, whole)[0]) == {"doubled"}
    newer = LogBuilder(epoch=1).fill(1)
    assert kinds(served_bytes("t", batches(newer.data), true, (0, 10))[0]) == {"not linked"}


def test_a_compressed_batch_may_be_served_in_another_form_with_the_same_records(tmp_path: Path) -> None:
    records = [Record(number, WHEN, None, b"v%d" % number) for number in range(5)]
    true = linked(tmp_path, one=encode_batch(records, compressed=True))
    assert served_bytes("t", batches(encode_batch(records)), true, (0, 5))[0].passed
    changed = [*records[:4], Record(4, WHEN, None, b"other")]
    assert kinds(served_bytes("t", batches(encode_batch(changed)), true, (0, 5))[0]) == {"other records"}
    assert kinds(served_bytes("t", batches(encode_batch(records, producer_id=7)), true, (0, 5))[0]) == {"other header"}
    marker = control_batch(5, 1, commit=True)
    assert next(batches(marker)).commits()


def test_the_seed_repeats_the_plan() -> None:
    for brokers in (1, 3):
        for lane, have in lanes(brokers, known()).items():
            first, again = (list(itertools.islice(faults(7, lane, have), 200)) for _ in range(2))
            assert first == again
            assert {fault.name for fault in first} == set(have)
            assert first != list(itertools.islice(faults(8, lane, have), 200))
    assert lanes(1, ["bridge-kill", "unclean"]).keys() == {"bridge"}


@pytest.mark.parametrize("name", ["broker-kill", "broker-and-bridges-kill", "bridges-away"])
def test_a_fault_that_breaks_leaves_no_server_ended(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> None:
        raise StackError("survived")

    servers = Servers.make(tmp_path, brokers=1, bridges=2, shim={})
    started: list[object] = []
    for kind in (Bridge, KafkaBroker):
        monkeypatch.setattr(kind, "kill", breaks)
        monkeypatch.setattr(kind, "start", lambda server: started.append(server))  # noqa: PLW0108 - a method
    acts = Acts(servers, [], Event())
    acts.ended.set()
    with pytest.raises(StackError, match="survived"):
        acts.act(Fault(0, name, 0, (0.0, 0.0, 0.0)))
    assert started == [*servers.bridges, *servers.kafka.brokers.values()]


def test_links_outlive_the_brokers_files_and_tell_a_topic_from_its_successor(tmp_path: Path) -> None:
    data, partition = tmp_path / "data", tmp_path / "data" / "again-0"
    links = HardLinks(tmp_path / "links", {1: [data, tmp_path / "never made"]})
    for topic_id, content in (("first", b"one"), ("second", b"two")):
        partition.mkdir(parents=True)
        (partition / "00000000000000000000.log").write_bytes(content)
        links.look()  # not known yet whose it is
        (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        links.look()
        with (partition / "00000000000000000000.log").open("ab") as log:
            log.write(b" more")
        links.look()
        shutil.rmtree(partition)
    assert [path.read_bytes() for path in links.files("first", 0)] == [b"one more"]
    assert [path.read_bytes() for path in links.files("second", 0)] == [b"two more"]


def test_who_deletes_a_topic_waits_for_who_writes_to_it() -> None:
    gate = Gate()
    with gate.shared(), gate.shared(), gate.alone(0.01) as got:
        assert not got
    with gate.alone(1) as got:
        assert got
    with gate.shared():
        pass
