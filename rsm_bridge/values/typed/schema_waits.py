"""How long rows of a topic wait for schema ids that the registry answers for with something else; who hears of it.

Any producer chooses ids. An id that is refused for good must cost its own rows their columns, never the table its
rows: they wait for a time, then they are dead letters until the registry answers otherwise. That time is counted from
a topic's first answer of its sort, so that many ids take no longer than one. While the registry is away there is no
end to the wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Lock
from typing import Final

import structlog

from rsm_bridge.limits import REGISTRY_MISSES_MAX, REGISTRY_REFUSED_SECONDS, REGISTRY_REFUSED_TRIES_MIN
from rsm_bridge.values.registry.errors import RegistryUnavailableError, SchemaRefusedError, SchemaUnknownError
from rsm_bridge.values.registry.expiring_cache import ExpiringCache

#: In place of an id: the subject that a topic's rule names. No producer chooses it, so its wait has no end.
OF_RULE: Final = -1


class _Wait(IntEnum):
    """How far an id's wait has come; each is logged once."""

    AWAY = 1
    REFUSED = 2
    OVER = 3


def is_hopeless(*, tries: int, seconds: float, malformed: bool) -> bool:
    """Whether an id that the registry refuses is waited for no more.

    Args:
        tries: answers about the id so far, one after the other, none of which was a schema or that there is none.
        seconds: since the topic's first answer of this sort.
        malformed: to wait does not mend such an answer; more tries than one protect from a hiccup.
    """
    return tries >= REGISTRY_REFUSED_TRIES_MIN and (malformed or seconds >= REGISTRY_REFUSED_SECONDS)


@dataclass(slots=True, kw_only=True)
class SchemaWaits:
    """Of one topic's values, or keys. May be used by several threads.

    Attributes:
        topic: its name, for the log.
        patient: whether anything is waited for that the registry refuses.
        log: receives a warning when an id begins to wait, and when its rows are dead letters; None: nobody reads it.
        clock: seconds, never going back.
    """

    topic: str = ""
    patient: bool = True
    log: structlog.typing.FilteringBoundLogger | None = None
    clock: Callable[[], float] = time.monotonic
    _ids: ExpiringCache[int, _Wait] = field(default_factory=lambda: ExpiringCache(REGISTRY_MISSES_MAX, 0))
    _sorts: dict[str, tuple[float, float]] = field(default_factory=dict)  # the first such answer, and the latest
    _lock: Lock = field(default_factory=Lock)

    def require_hope(self, schema_id: int, error: RegistryUnavailableError) -> None:
        """Notes that the registry has given neither this schema nor that there is none.

        Raises:
            SchemaUnknownError: its rows wait no more.
        """
        with self._lock:
            if not isinstance(error, SchemaRefusedError):
                self._note(schema_id, _Wait.AWAY, error)
                return
            if not self._is_over(schema_id, error):
                self._note(schema_id, _Wait.REFUSED, error)
                return
            self._note(schema_id, _Wait.OVER, error)
        raise SchemaUnknownError(f"schema id {schema_id}: the registry answers {error.answer}") from error

    def ended(self, schema_id: int) -> None:
        """Notes that the registry has given this schema, or that there is none."""
        with self._lock:
            self._ids.drop(schema_id)

    def _is_over(self, schema_id: int, error: SchemaRefusedError) -> bool:
        now = self.clock()
        first, latest = self._sorts.get(error.sort, (now, now))
        first = first if now - latest <= REGISTRY_REFUSED_SECONDS else now
        self._sorts[error.sort] = first, now
        if schema_id == OF_RULE:
            return False
        if not self.patient or self._ids.get(schema_id, now) is _Wait.OVER:
            return True
        return is_hopeless(tries=error.tries, seconds=now - first, malformed=error.malformed)

    def _note(self, schema_id: int, wait: _Wait, error: RegistryUnavailableError) -> None:
        before = self._ids.get(schema_id, self.clock())
        if before is not None and before >= wait:
            return
        self._ids.put(schema_id, wait)
        if self.log is not None:
            event = "rows of a schema are dead letters" if wait is _Wait.OVER else "rows wait for a schema"
            named = {} if schema_id == OF_RULE else {"schema_id": schema_id}
            self.log.warning(event, topic=self.topic, **named, error=str(error))
