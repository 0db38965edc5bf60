"""The second client: Kafka's own, in a Java program beside us, as producer of all three kinds and as consumer."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.chaos import limits
from tests.chaos.chaos_ledger import Acked, ChaosLedger
from tests.chaos.contents import Content
from tests.chaos.record_batches import CODECS
from tests.chaos.writers import Target, Writer
from tierberg.stack.errors import StackError
from tierberg.stack.jars import broker_jars
from tierberg.stack.java_program import JavaProgram

_PROGRAM = Path(__file__).with_name("ChaosClient.java")
_REFUSED = "ChaosClient: "
_KINDS: Sequence[Literal["plain", "idempotent", "transactional"]] = ("plain", "idempotent", "transactional")


def java_client() -> JavaProgram:
    """The running program."""
    return JavaProgram(_PROGRAM, [], jars=broker_jars(os.environ.get("KAFKA_VERSION", "4.3.1")))


def consume(
    client: JavaProgram, bootstrap: str, topic: str, partition: int, span: tuple[int, int], *, committed: bool
) -> list[tuple[int, int, bytes]]:
    """Offset, timestamp and digest of each record of [first, end) that Kafka's own consumer gets, in its order.

    Raises:
        StackError: it failed, or got nothing for two minutes.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    words = ["consume", bootstrap, isolation, topic, partition, *span]
    lines = client.ask("\t".join(map(str, words)), limits.CONSUMED_S + 60)
    if lines and lines[-1].startswith("!"):
        raise StackError(lines[-1][1:])
    found = (line.split(" ") for line in lines)
    return [(int(offset), int(when), bytes.fromhex(digest)) for offset, when, digest in found]


class JavaWriter(Writer):
    """One thread that goes through producers of all kinds and codecs, one after another."""

    def __init__(self, name: str, number: int, seed: int, bootstrap: str, ledger: ChaosLedger) -> None:
        super().__init__(name, number, seed, bootstrap, ledger)
        self._client = java_client()
        self._open = ""
        self._kind: Literal["plain", "idempotent", "transactional"] = "plain"
        self._codec = "none"
        self._bursts = 0

    @property
    def spread(self) -> int:
        return 2

    def burst(self, targets: Sequence[Target]) -> int:
        if self._bursts % limits.BURSTS_PER_PRODUCER == 0:
            self._close_producer()
        self._bursts += 1
        try:
            self._opened()
            return self._transaction(targets) if self._kind == "transactional" else self._plain(targets)
        except StackError as error:
            self.note(error)
            self._close_producer()
            return 20

    def close(self) -> None:
        self._client.close()

    def _opened(self) -> None:
        if self._open:
            return
        self._kind, self._codec = self.draw.choice(_KINDS), self.draw.choice(CODECS)
        self._open = f"p{self._bursts}"
        delivery_ms = (limits.TRANSACTION_TIMEOUT_S if self._kind == "transactional" else limits.DELIVERY_S) * 1000
        settings = {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "compression.type": self._codec,
            "linger.ms": self.draw.choice((0, 5, 50)),
            "batch.size": self.draw.choice((0, 2_000, 64_000)),
            "enable.idempotence": "false" if self._kind == "plain" else "true",
            "delivery.timeout.ms": delivery_ms - 1000,
            "request.timeout.ms": delivery_ms // 2,
            "max.block.ms": 20_000,
            "max.request.size": 1_900_000,
        }
        if self._kind == "transactional":
            settings |= {
                "transactional.id": self.name,
                "transaction.timeout.ms": limits.TRANSACTION_TIMEOUT_S * 1000,
            }
        self._ask("open", *(f"{key}={value}" for key, value in settings.items()))
        if self._kind == "transactional":
            self._ask("init")

    def _plain(self, targets: Sequence[Target]) -> int:
        sent = 0
        for target in targets:
            contents = self.make(target, self.count())
            sent += len(contents)
            if not self._send(target, contents, 0):
                self._close_producer()
                break
        return sent

    def _transaction(self, targets: Sequence[Target]) -> int:
        transaction = self.ledger.new_transaction()
        self._ask("begin")
        sent, whole = 0, True
        for target in targets:
            contents = self.make(target, max(1, self.count() // len(targets)))
            sent += len(contents)
            whole = whole and self._send(target, contents, transaction)
        fate = self.draw.random()
        if fate < 0.08:
            self._close_producer()
        elif fate < 0.3 or not whole:
            self._ask("abort")
        else:
            self.ledger.end(transaction, "unknown")
            self._ask("commit")
            self.ledger.end(transaction, "committed")
        return sent

    def _send(self, target: Target, contents: Sequence[Content], transaction: int) -> bool:
        kind = f"{self._kind} java {self._codec}"
        digests = [content.digest for content in contents]
        self.ledger.sent(kind, digests, repeatable=self._kind == "plain")
        place = (target.topic_id, target.partition)
        log_append = target.topic.shape.config.get("message.timestamp.type") == "LogAppendTime"
        try:
            answers = self._ask("send", *(_word(target, content) for content in contents))
        except StackError:
            answers = []
        answers += ["E no answer"] * (len(contents) - len(answers))
        whole = True
        for content, digest, answer in zip(contents, digests, answers, strict=True):
            if answer.startswith("E"):
                whole = False
                self.note(answer)
                self.ledger.doubt(target.topic.name, digest)
                continue
            offset, when = map(int, answer.split(" ")[1:])
            if offset < 0:
                self.ledger.acknowledge_somewhere(place, digest, kind)
            else:
                stamp = when if log_append else content.timestamp_ms
                self.ledger.acknowledge(place, offset, Acked(stamp, digest, transaction), kind)
        return whole

    def _close_producer(self) -> None:
        if self._open:
            try:
                self._ask("close")
            except StackError as error:
                self.note(error)
            self._open = ""

    def _ask(self, command: str, *words: str) -> list[str]:
        try:
            return self._client.ask("\t".join((command, self._open, *words)), limits.JAVA_ANSWER_S)
        except StackError as error:
            if not str(error).startswith(_REFUSED):
                # An answer that comes late would be taken for that of the next question.
                self._client.close()
                self._client, self._open = java_client(), ""
            raise


def _word(target: Target, content: Content) -> str:
    headers = "|".join(f"{_base64(name.encode())}:{_base64(held)}" for name, held in content.headers)
    fields = (target.topic.name, target.partition, content.timestamp_ms, _base64(content.key), _base64(content.value))
    return ",".join(map(str, (*fields, headers)))


def _base64(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()
