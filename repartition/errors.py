"""The one error type of this room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from converter.errors import TierbergError
from iceberg_catalog.connect.redaction import hide
from iceberg_catalog.errors import CatalogError, CatalogErrorKind
from repartition.limits import CAUSES_MAX
from rsm_bridge.errors import BridgeError, ErrorKind

_COMMIT_FAILED: Final = "org.apache.iceberg.exceptions.CommitFailedException"
_NOT_VALID: Final = "org.apache.iceberg.exceptions.ValidationException"
_NO_GC: Final = "GC is disabled"

_OwnKind = Literal[
    "bad_rule",  # the rule does not fit the topic's table, or the target's
    "no_source",  # the topic has no table yet, or several
    "rewound",  # the topic's table took back rows that the projection has read
    "no_frontier",  # the target has rows and nothing says how far they go
    "not_ours",  # the target is somebody else's table, or a projection of another topic
    "key_moved",  # a key was met in two Kafka partitions
    "raced",  # another writer was faster: run again
    "no_spark",  # PySpark, or Iceberg's jar for it, is not installed
    "spark",  # Spark failed
    "no_queries",  # the file of queries cannot be read, or has none
    "bad_queries",  # queries that are too many, too long, or do not name the table
    "no_picture",  # the picture cannot be written
]
#: With what a run meets of store and catalog: `store_unavailable`, `unavailable`, `corrupt_state`, …
RepartitionErrorKind = _OwnKind | ErrorKind | CatalogErrorKind
#: Packages whose errors are those of a catalog, or of where it keeps its tables.
_CLIENTS: Final = frozenset({"pyiceberg", "requests", "sqlalchemy", "botocore"})


class RepartitionError(TierbergError):
    """What went wrong with one projection, and what to do; without credentials that a library or a server quoted.

    Attributes:
        kind: what went wrong.
    """

    def __init__(self, kind: RepartitionErrorKind, message: str) -> None:
        super().__init__(hide(message))
        self.kind: RepartitionErrorKind = kind


def as_ours(error: Exception) -> RepartitionError:
    """Ours as it is; somebody else's by the kind that it has, or by whose it is."""
    if isinstance(error, RepartitionError):
        return error
    if isinstance(error, BridgeError | CatalogError):
        return RepartitionError(error.kind, str(error))
    if lost_race(error):
        return RepartitionError("raced", first_line(error))
    of_client = any(base.__module__.partition(".")[0] in _CLIENTS for base in type(error).__mro__)
    return RepartitionError("unavailable" if of_client else "spark", first_line(error))


def first_line(error: Exception) -> str:
    """Kind and first line of an error of a library: Spark's go on with a stack trace of Java's."""
    found = next(java_causes(error), None)
    kind, text = (type(error).__name__, str(error)) if found is None else (found[0].rpartition(".")[2], found[1])
    text = text.strip().partition("\n")[0]
    return f"{kind}: {text}" if text else kind


def lost_race(error: Exception) -> bool:
    """Whether a catalog refused a commit since somebody else's came first; then it is enough to begin again."""
    return any(name == _COMMIT_FAILED for name, _ in java_causes(error))


def lost_maintenance(error: Exception) -> bool:
    """The same of a chore, which Iceberg also refuses for what others' commits hold."""
    return any(
        name == _COMMIT_FAILED or (name == _NOT_VALID and _NO_GC not in said) for name, said in java_causes(error)
    )


def java_causes(error: Exception) -> Iterator[tuple[str, str]]:
    """Class and message of what was raised in Java, and of its causes; nothing of an error of Python's."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(CAUSES_MAX):
        if thrown is None:
            return
        yield str(thrown.getClass().getName()), str(thrown.getMessage() or "")
        thrown = thrown.getCause()
