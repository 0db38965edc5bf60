"""The one error type of this room."""

from __future__ import annotations

from typing import Literal

RepartitionErrorKind = Literal[
    "bad_rule",  # the rule does not fit the topic's table, or the target's
    "no_source",  # the topic has no table yet, or several
    "rewound",  # the topic's table took back rows that the copy has read
    "no_frontier",  # the target has rows and nothing says how far they go
    "not_ours",  # the target is somebody else's table, or a copy of another topic
    "key_moved",  # a key was met in two Kafka partitions
    "raced",  # another writer was faster: run again
    "spark",  # Spark failed
    "no_queries",  # the file of queries cannot be read, or has none
    "bad_queries",  # queries that are too many, too long, or do not name the table
    "no_picture",  # the picture cannot be written
]


class RepartitionError(Exception):
    """What went wrong with one copy, and what to do.

    Attributes:
        kind: what went wrong.
    """

    def __init__(self, kind: RepartitionErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def first_line(error: Exception) -> str:
    """Kind and first line of an error of a library: Spark's go on with a stack trace of Java's."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
