"""Vended credentials: keys to the S3 server that a REST catalog's answers carry, and that really end.

Each is a user of the server that is removed when its time is over, so a stale key is refused by the server itself.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Self

from tierberg.stack.errors import StackError
from tierberg.stack.servers.versitygw import VersityGateway


class KeyLender:
    """Adds keys to answers that carry a table.

    Attributes:
        secrets: all that were lent.
        ended: keys that are refused by now.
    """

    def __init__(self, gateway: VersityGateway, seconds: float) -> None:
        self._gateway, self._seconds = gateway, seconds
        self.secrets: list[str] = []
        self.ended: list[str] = []
        self._current: tuple[str, str, float] | None = None
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()

    def edit(self, method: str, path: str, body: bytes) -> bytes:
        """The answer, with keys in its `config` if it is to a load or a creation of a table."""
        loads = method == "GET" and "/tables/" in path
        creates = method == "POST" and path.endswith("/tables")
        if not (loads or creates):
            return body
        access_key, secret_key, until = self._keys()
        answer = json.loads(body)
        answer["config"] = answer.get("config", {}) | {
            "s3.access-key-id": access_key,
            "s3.secret-access-key": secret_key,
            "s3.session-token-expires-at-ms": str(int((time.time() + until - time.monotonic()) * 1000)),
        }
        return json.dumps(answer).encode()

    def _keys(self) -> tuple[str, str, float]:
        """The current ones; new ones when a quarter of their time is over."""
        with self._lock:
            now = time.monotonic()
            if self._current is None or self._current[2] - now < 0.75 * self._seconds:
                self._current = self._lend(now + self._seconds)
            return self._current

    def _lend(self, until: float) -> tuple[str, str, float]:
        access_key, secret_key = f"lent{len(self.secrets)}", f"lent-{uuid.uuid4().hex}"
        self._gateway.add_user(access_key, secret_key)
        self.secrets.append(secret_key)
        timer = threading.Timer(self._seconds, self._end, (access_key,))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        return access_key, secret_key, until

    def _end(self, access_key: str) -> None:
        with suppress(StackError):  # the server has been stopped
            self._gateway.remove_user(access_key)
            self.ended.append(access_key)
