"""Errors of the bridge, grouped by what a handler does with them.

Each has a `kind`: the word in the trailer `tierberg-error`, in logs and as a label of metrics. The words are listed in
`docs/architecture.md`; a new one is added only when the caller would act differently.
"""

from __future__ import annotations

import traceback
from typing import Literal

from converter.errors import TierbergError

ErrorKind = Literal[
    "invalid_segment",
    "damaged_in_transit",
    "corrupt_object",
    "unsupported_version",
    "not_found",
    "no_index",
    "foreign_segment",
    "not_allowed",
    "segment_deleted",
    "protocol_mismatch",
    "bad_request",
    "overloaded",
    "store_unavailable",
    "deadline",
    "cancelled",
    "internal",
]


class BridgeError(TierbergError):
    """A refusal or failure with a stable kind. The message is one sentence for people."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


class StoreError(BridgeError):
    """The object store did not do what it was asked; a retry may help."""

    def __init__(self, message: str) -> None:
        super().__init__("store_unavailable", message)


class ObjectNotFoundError(BridgeError):
    """No object has this key."""

    def __init__(self, key: str) -> None:
        super().__init__("not_found", f"no object {key}")
        self.key = key


class SettingsError(TierbergError):
    """The configuration cannot be used. The message names the key, what is wrong and what is allowed."""

    kind: str = "bad_settings"


class InUseError(SettingsError):
    """The data folder belongs to another process now."""

    kind = "overloaded"


#: Kinds of all rooms by which a store, a catalog, brokers or Spark did not do what they were asked.
_PASSING_KINDS = frozenset(
    {"store_unavailable", "unavailable", "deadline", "overloaded", "cancelled", "internal", "raced", "spark"}
)


def may_pass(error: BaseException) -> bool:
    """Whether the same again may work, by the error's kind: it says nothing about what is stored, or was asked for."""
    return not isinstance(error, TierbergError) or error.kind in _PASSING_KINDS


def release_frames(error: BaseException) -> None:
    """Frees what the calls that ended with an error, or with one that led to it, still hold in their variables.

    An error and the frames in its traceback often refer to one another, and stay until Python collects; a call of ours
    may have had a hundred megabytes. Calls that still run keep theirs.
    """
    seen: set[int] = set()
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            rest += [one.__cause__, one.__context__]
