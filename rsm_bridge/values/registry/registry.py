"""Schemas by id and by subject, from a registry that may be slow, away or wrong at any moment.

What a registry said of an id holds for ever; that it knows none holds for half a minute. A look-up ends at its
deadline whatever the library does: it runs on a thread of a small pool, and when the time is over the connection is
closed under it; where a thread has less patience, it goes on without it. After a failure nothing is asked for two
seconds, so that copies do not queue for a dead registry: they store bytes, and columns follow. An answer that is
neither a schema nor that there is none is asked for again after two seconds, then after twice as long each time, up to
half a minute, and keeps nobody from others. Callers that want the same schema at the same moment share one look-up.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rsm_bridge.config.registry import SchemaRegistrySettings, registry_secrets
from rsm_bridge.limits import (
    REGISTRY_AGAIN_SECONDS,
    REGISTRY_CACHE_BYTES_MAX,
    REGISTRY_MISS_SECONDS,
    REGISTRY_MISSES_MAX,
    REGISTRY_SCHEMAS_MAX,
    REGISTRY_WORKERS,
)
from rsm_bridge.values.registry.client import is_answered, open_client
from rsm_bridge.values.registry.errors import (
    RegistryUnavailableError,
    SchemaLookupError,
    SchemaRefusedError,
    SchemaUnknownError,
    explained,
)
from rsm_bridge.values.registry.expiring_cache import ExpiringCache
from rsm_bridge.values.registry.look_up_time import LookUpTimeOverError, awaited
from rsm_bridge.values.registry.schemas import Key, RegisteredSchema, SchemaReader, named

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_ID_MAX = 2**31 - 1


@dataclass(slots=True)
class _Call:
    """One look-up; `since` and `client`, the connection it uses, once it runs."""

    future: Future[RegisteredSchema]
    since: float | None = None
    client: SchemaRegistryClient | None = None
    abandoned: threading.Event = field(default_factory=threading.Event)


class SchemaRegistry:
    """The registry of the settings. May be used by several threads."""

    def __init__(self, settings: SchemaRegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet.

        Args:
            settings: where it is and how to get in.
            clock: seconds, never going back.

        Raises:
            SettingsError: the extra `typed` is not installed, or a file of `tls` cannot be used.
        """
        self._settings = settings
        self._clock = clock
        self._secrets = registry_secrets(settings)
        self._where = ", ".join(settings.urls())
        self._lock = threading.Lock()
        self._found: ExpiringCache[Key, RegisteredSchema] = ExpiringCache(
            REGISTRY_SCHEMAS_MAX, REGISTRY_CACHE_BYTES_MAX
        )
        self._missed: ExpiringCache[Key, SchemaLookupError] = ExpiringCache(REGISTRY_MISSES_MAX, 0)
        self._refusals: ExpiringCache[Key, int] = ExpiringCache(REGISTRY_MISSES_MAX, 0)
        self._calls: dict[Key, _Call] = {}
        self._idle = [open_client(settings)]
        self._shut_until = self._clock()
        self._shut_why = ""
        self._workers = ThreadPoolExecutor(REGISTRY_WORKERS, thread_name_prefix="registry")

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id, with everything it refers to. Waits at most `request_timeout`; see look_up_time.py.

        Raises:
            SchemaUnknownError: the registry has none.
            SchemaUnusableError: it has one that cannot be used.
            SchemaRefusedError: it answers something else; ask again later.
            RegistryUnavailableError: it does not say; ask again later.
        """
        if not 0 <= schema_id <= _ID_MAX:
            # Four bytes of anything may look like an id: registries answer such a request as if it were misspelt.
            raise SchemaUnknownError(f"schema id {schema_id}: ids are 0 to {_ID_MAX}")
        return self._get(("id", schema_id))

    def ask(self, schema_ids: Iterable[int]) -> None:
        """Begins to look up what :meth:`by_id` is about to be asked for. Waits for nothing.

        Some of it: one worker stays free for what others wait for.
        """
        with self._lock:
            now = self._clock()
            for schema_id in schema_ids:
                if 0 <= schema_id <= _ID_MAX and len(self._calls) < REGISTRY_WORKERS - 1:
                    with contextlib.suppress(SchemaLookupError):
                        self._begun(("id", schema_id), now)

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject, as of at most `latest_refresh` ago. Waits at most `request_timeout`.

        Raises:
            SchemaUnknownError: there is no such subject, or it has no version.
            SchemaUnusableError: it has one that cannot be used.
            SchemaRefusedError: the registry answers something else; ask again later.
            RegistryUnavailableError: it does not say; ask again later.
        """
        return self._get(("subject", subject))

    def close(self) -> None:
        """Ends connections and threads. A look-up that runs fails."""
        with self._lock:
            self._shut_until, self._shut_why = float("inf"), f"the schema registry at {self._where} was closed"
            calls, idle = list(self._calls.values()), self._idle
            self._idle = []
        for call in calls:
            _abandon(call)
        for client in idle:
            client.close()
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _get(self, key: Key) -> RegisteredSchema:
        with self._lock:
            begun = self._begun(key, self._clock())
        if isinstance(begun, RegisteredSchema):
            return begun
        self._end_overdue()
        timeout = self._settings.request_timeout
        try:
            return awaited(begun.future, timeout)
        except TimeoutError:
            raise self._give_up(key, begun) from None
        except LookUpTimeOverError:
            # It goes on; who asks again finds what it brings.
            text = f"{named(key)}: the schema registry at {self._where} has not answered yet"
            raise RegistryUnavailableError(text) from None
        except SchemaLookupError as error:
            # Each of those who waited gets one of his own: a traceback belongs to one thread.
            raise copy.copy(error) from None

    def _begun(self, key: Key, now: float) -> RegisteredSchema | _Call:
        """The schema where it is known, or a look-up that runs or waits for a worker. For who has the lock."""
        known = self._found.get(key, now)
        if known is not None:
            return known
        missed = self._missed.get(key, now)
        if missed is not None:
            raise copy.copy(missed)
        call = self._calls.get(key)
        if call is None:
            if now < self._shut_until:
                raise self._not_asked(key)
            call = self._calls[key] = _Call(Future())
            self._workers.submit(self._run, key, call)
        return call

    def _not_asked(self, key: Key) -> RegistryUnavailableError:
        return RegistryUnavailableError(f"{named(key)}: not asked for, {self._shut_why}", everybody=False)

    def _overdue(self, call: _Call) -> bool:
        return call.since is not None and self._clock() >= call.since + self._settings.request_timeout

    def _end_overdue(self) -> None:
        """Ends look-ups that nobody ends who waits for them: they would keep their workers as long as bytes come."""
        with self._lock:
            overdue = [(key, call) for key, call in self._calls.items() if self._overdue(call)]
        for key, call in overdue:
            self._give_up(key, call)

    def _give_up(self, key: Key, call: _Call) -> RegistryUnavailableError:
        within = f"within {self._settings.request_timeout:g} s"
        if call.since is None:
            text = f"{named(key)}: the schema registry at {self._where} was not asked {within}, so many others were"
            error = RegistryUnavailableError(text, everybody=False)
        else:
            error = RegistryUnavailableError(
                f"{named(key)}: the schema registry at {self._where} has not answered {within}; check that it runs, or "
                "raise schema_registry.request_timeout"
            )
        self._end(key, call, error)
        _abandon(call)
        return error

    def _run(self, key: Key, call: _Call) -> None:
        try:
            if call.abandoned.is_set():
                return  # while it waited for a worker
            call.since = self._clock()
            if call.since < self._shut_until:
                raise self._not_asked(key)  # another one failed while this one waited for a worker
            client = call.client = self._borrow()
            schema = SchemaReader(client, call.abandoned.is_set).read(key)
        except SchemaLookupError as error:
            self._end(key, call, error)
        except Exception as error:  # noqa: BLE001 - whatever client or HTTP library raise; who waits gets it explained
            answered = is_answered(error)
            self._end(key, call, explained(error, named(key), self._where, self._secrets, answered=answered))
        else:
            self._end(key, call, schema)
        finally:
            self._give_back(call)

    def _borrow(self) -> SchemaRegistryClient:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return open_client(self._settings)

    def _give_back(self, call: _Call) -> None:
        client = call.client
        if client is None:
            return
        client.clear_caches()  # its cache has no limit, and ours has
        with self._lock:
            if not call.abandoned.is_set() and len(self._idle) < REGISTRY_WORKERS:
                self._idle.append(client)
                return
        client.close()

    def _end(self, key: Key, call: _Call, outcome: RegisteredSchema | SchemaLookupError) -> None:
        """Remembers what came of a look-up and tells those who wait; only the first outcome of a call counts."""
        with self._lock:
            if self._calls.get(key) is call:
                del self._calls[key]
            if call.future.done():
                return
            now = self._clock()
            if isinstance(outcome, SchemaRefusedError):
                outcome.tries = 1 + (self._refusals.get(key, now) or 0)
                self._refusals.put(key, outcome.tries)
            elif not isinstance(outcome, RegistryUnavailableError):
                self._refusals.drop(key)
            if isinstance(outcome, RegisteredSchema):
                end = now + self._settings.latest_refresh if key[0] == "subject" else float("inf")
                self._found.put(key, outcome, outcome.size, end)
                call.future.set_result(outcome)
                return
            if isinstance(outcome, RegistryUnavailableError) and outcome.everybody:
                self._shut_until = max(self._shut_until, now + REGISTRY_AGAIN_SECONDS)
                self._shut_why = f"since a moment ago: {outcome}"
            else:
                self._missed.put(key, outcome, end=now + _pause(outcome))
            call.future.set_exception(outcome)


def _abandon(call: _Call) -> None:
    """Closes the connection under a look-up, which then fails at the next byte."""
    call.abandoned.set()
    if call.client is not None:
        with contextlib.suppress(Exception):
            call.client.close()


def _pause(outcome: SchemaLookupError) -> float:
    """Seconds until the same is asked for again."""
    if isinstance(outcome, SchemaRefusedError):
        doublings = min(outcome.tries - 1, 10)
        return min(REGISTRY_AGAIN_SECONDS * (1 << doublings), REGISTRY_MISS_SECONDS)
    return REGISTRY_AGAIN_SECONDS if isinstance(outcome, RegistryUnavailableError) else REGISTRY_MISS_SECONDS
