"""A stock broker's own metrics over its JMX port, through a small Java program: no agent in the broker."""

from __future__ import annotations

from pathlib import Path

from tierberg.stack.java_program import JavaProgram
from tierberg.stack.ports import LOOPBACK

_PROGRAM = Path(__file__).with_name("JmxReader.java")


class JmxReader(JavaProgram):
    """A connection to one broker; use as a context manager. Not for use by several threads at once."""

    def __init__(self, port: int) -> None:
        """Connects to a loopback port. The first read waits for the program to start."""
        super().__init__(_PROGRAM, [f"{LOOPBACK}:{port}"])

    def read(self, pattern: str, attribute: str) -> dict[str, float]:
        """The attribute of every bean whose name matches, by canonical object name; empty when there is none.

        Raises:
            StackError: the reader ended or gave no answer in time.
        """
        pairs = (line.split("\t") for line in self.ask(f"{pattern}\t{attribute}"))
        return {name: float(value) for name, value in pairs}

    def topic_total(self, meter: str, topic: str) -> int:
        """A topic's count of a broker meter, for example `RemoteFetchBytesPerSec`.

        Counts from the broker's start; 0 when the meter was never marked.
        """
        pattern = f"kafka.server:type=BrokerTopicMetrics,name={meter},topic={topic}"
        return int(sum(self.read(pattern, "Count").values()))
