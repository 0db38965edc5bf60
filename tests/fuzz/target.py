"""What is fuzzed: a target makes inputs from a seed and judges what becomes of one.

An input is bytes, whatever the target makes of them, so that a failing one is a file that can be run again.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIB = 1024 * 1024


class WrongError(Exception):
    """The product broke a promise for this input: the message says which."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an input.

    Attributes:
        words: the same for inputs that take the same way; new words are kept in the corpus.
        judge: compares with an oracle, after time and memory were taken; raises WrongError.
    """

    words: str
    judge: Callable[[], None] | None = None


class Target(ABC):
    """One thing that others' bytes reach.

    Attributes:
        name: on the command line and in the table.
        seconds_max: an input that takes longer hangs.
        memory_bytes_max: how much an input may add to the process's resident memory at its peak.
    """

    name: str
    seconds_max: float = 20.0
    memory_bytes_max: int = 256 * MIB

    def prepare(self) -> None:  # noqa: B027, most need nothing
        """Loads and compiles what inputs need, so that the first of them costs no more than the others."""

    def close(self) -> None:  # noqa: B027, most hold nothing
        """Ends what prepare() began."""

    @abstractmethod
    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        """A new input: something valid that is bent, or one of the corpus that is bent further."""

    @abstractmethod
    def run(self, data: bytes) -> Outcome:
        """Hands the input to the product, and to nothing else that takes time or memory.

        Raises:
            WrongError: a promise was broken.
            Exception: every other exception is one that the product does not document.
        """
