"""Says what a bridge cannot reach, what that means and when it is back: at start, and for as long as it runs.

Without it an outage is news only when a call or a table meets it, after time-outs that are made for slow servers, not
for a person who waits at a start. Each place is asked on a thread of its own, with a short deadline; an answer that
comes later does not count, and none is asked again before the one before has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from iceberg_catalog.connect.redaction import hide
from rsm_bridge.limits import REACH_AGAIN_SECONDS, REACH_REMIND_SECONDS, REACH_SECONDS, REACH_SOUND_SECONDS
from rsm_bridge.storage.object_store import first_line


@dataclass(slots=True, kw_only=True)
class Dependency:
    """Something a bridge needs.

    Attributes:
        name: `store` or `catalog`.
        where: its address, without secrets.
        ask: returns when it answers; raises, or hangs, while it does not.
        without: what a bridge does without it, in words.
        said: why it cannot be reached; None: it can, or nobody knows yet.
        known: set after the first answer, or deadline.
    """

    name: str
    where: str
    ask: Callable[[], object]
    without: str
    said: str | None = None
    known: threading.Event = field(default_factory=threading.Event)

    @property
    def word(self) -> str:
        """`ok`, `away` or `unknown`."""
        return "away" if self.said is not None else "ok" if self.known.is_set() else "unknown"


class Reachability:
    """Watches places from :meth:`start` to :meth:`stop`."""

    def __init__(self, places: Sequence[Dependency], log: structlog.typing.FilteringBoundLogger) -> None:
        self.places = tuple(places)
        self._log = log
        self._stop = threading.Event()

    def start(self) -> None:
        """Begins to ask all places at once."""
        for place in self.places:
            threading.Thread(target=self._watch, args=(place,), name=f"reach-{place.name}", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch; an answer that hangs is left behind."""
        self._stop.set()

    def first_words(self) -> str:
        """`store=ok catalog=away`, after the first answers, which take REACH_SECONDS at most."""
        for place in self.places:
            place.known.wait(2 * REACH_SECONDS)
        return " ".join(f"{place.name}={place.word}" for place in self.places)

    def note(self, name: str) -> str | None:
        """One sentence about a place that is away."""
        for place in self.places:
            if place.name == name and place.said is not None:
                return f"the {name} cannot be reached: {place.said}; {place.without}"
        return None

    def _watch(self, place: Dependency) -> None:
        since = reminded = time.monotonic()
        asked: _Question | None = None
        while not self._stop.is_set():
            if asked is None or asked.ended:
                asked = _Question(place)
            wrong, now = asked.wait(REACH_SECONDS), time.monotonic()
            if self._stop.is_set():
                return
            if wrong is None and place.said is not None:
                self._log.info(f"the {place.name} can be reached again", where=place.where, after_s=round(now - since))
            elif wrong is not None and (place.said is None or now - reminded >= REACH_REMIND_SECONDS):
                since, reminded = (now if place.said is None else since), now
                self._log.warning(
                    f"the {place.name} cannot be reached; {place.without}",
                    where=place.where,
                    error=wrong,
                    retry_s=REACH_AGAIN_SECONDS,
                )
            place.said = wrong
            place.known.set()
            self._stop.wait(REACH_SOUND_SECONDS if wrong is None else REACH_AGAIN_SECONDS)


class _Question:
    """One question on a thread of its own."""

    def __init__(self, place: Dependency) -> None:
        self._place = place
        self._wrong: str | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"ask-{place.name}", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float) -> str | None:
        """Why there is no answer; None: there is one."""
        return self._wrong if self._ended.wait(seconds) else f"no answer within {seconds:g} s"

    def _run(self) -> None:
        try:
            self._place.ask()
        except Exception as error:  # noqa: BLE001 - whatever clients raise is why it is away
            self._wrong = hide(first_line(error))
        finally:
            self._ended.set()
