"""Which tables cannot be published, and whether that is news: an outage is said once, however many tables it stops.

Tables fail apart. One that is refused for good must not be reported anew each time another one succeeds, and a catalog
that is away fails all of them with one cause.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

#: Longer words with digits in them are names, addresses, keys and ids of requests; shorter ones are statuses.
_STATUS_CHARS_MAX = 4


@dataclass(slots=True)
class Outages:
    """Causes by topic id. Any thread."""

    _causes: dict[bytes, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, topic_id: bytes, said: str) -> bool:
        """Notes why a table failed; True when no table was failing for this."""
        cause = _cause(said)
        with self._lock:
            news = cause not in self._causes.values()
            self._causes[topic_id] = cause
        return news

    def works(self, topic_id: bytes) -> bool:
        """Notes that a table was published; True when it was the last one that failed for its cause."""
        with self._lock:
            cause = self._causes.pop(topic_id, None)
            return cause is not None and cause not in self._causes.values()


def _cause(said: str) -> str:
    """The message without what differs between tables and tries that fail for one reason."""
    words = said.split()
    return " ".join(word for word in words if len(word) <= _STATUS_CHARS_MAX or not any(map(str.isdigit, word)))
