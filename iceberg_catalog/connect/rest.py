"""PyIceberg's REST catalog with a time-out on every request.

PyIceberg sets none, and a server that accepts and falls silent would hold a publisher thread for ever. Three places
send requests: the catalog's session (also while it fetches its first token), the adapter that signs for AWS, which
PyIceberg mounts over ours, and the OAuth2 manager, which does not use the session.

What the server issues passes here too: tokens and credentials to a table's files are hidden from logs from then on,
and the latter carry the time at which they were lent (see `commit/vended_credentials.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import requests
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.table import Table
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ConnectionError as RequestsConnectionError
from urllib3.exceptions import ProtocolError

from iceberg_catalog.commit.vended_credentials import stamp
from iceberg_catalog.connect.redaction import remember_issued

_BEARER = "Bearer "
#: What may be sent again without harm; a commit may not.
_SAFE = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Milliseconds: until a connection stands, and between two bytes of an answer."""

    connect_ms: int
    read_ms: int

    def seconds(self) -> tuple[float, float]:
        """As `requests` takes them."""
        return self.connect_ms / 1000, self.read_ms / 1000


class _Timed(BaseAdapter):
    """Another adapter, with time-outs. The tokens it sends are hidden from logs.

    Servers close connections that were idle, and only the next use of one says so: what may be sent again is sent once
    more when the connection ends without an answer. Not after a time-out, and not where none could be made.
    """

    def __init__(self, inner: BaseAdapter, timeouts: Timeouts) -> None:
        super().__init__()
        self._inner, self._timeouts = inner, timeouts

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        sent = str(request.headers.get("Authorization", ""))
        if sent.startswith(_BEARER):
            remember_issued({"token": sent.removeprefix(_BEARER)})
        kwargs = {**kwargs, "timeout": self._timeouts.seconds()}
        try:
            return self._inner.send(request, *args, **kwargs)
        except RequestsConnectionError as error:
            if request.method not in _SAFE or not error.args or not isinstance(error.args[0], ProtocolError):
                raise
            return self._inner.send(request, *args, **kwargs)

    def close(self) -> None:
        self._inner.close()


class _TimedTokens(OAuth2TokenProvider):
    """PyIceberg's client-credentials flow, with time-outs."""

    def __init__(self, given: OAuth2TokenProvider, timeouts: Timeouts) -> None:
        super().__init__(
            given.client_id, given.client_secret, given.token_url, given.scope, given.refresh_margin, given.expires_in
        )
        self._timeouts = timeouts

    def _refresh_token(self) -> None:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        response = requests.post(
            self.token_url,
            data=form,
            headers={"Authorization": self._client_secret_header},
            timeout=self._timeouts.seconds(),
        )
        response.raise_for_status()
        answer = response.json()
        expires_in = answer.get("expires_in", self.expires_in)
        if expires_in is None:
            raise ValueError(f"{self.token_url} does not say when its tokens expire: set expires_in")
        self._token = answer["access_token"]
        # Of a token that does not live much longer than the margin, half of its life is used.
        lasts = max(float(expires_in) - self.refresh_margin, float(expires_in) / 2)
        self._expires_at = int(time.monotonic() + lasts)


class TimedRestCatalog(RestCatalog):
    """Every session it makes, the first one for its configuration too, has time-outs."""

    def __init__(self, name: str, timeouts: Timeouts, **properties: Any) -> None:
        # The parent makes its first session while it is being made itself.
        self._timeouts = timeouts
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        # The first thing done to a new session, before a token is fetched through it.
        for prefix in ("http://", "https://"):
            session.mount(prefix, _Timed(HTTPAdapter(), self._timeouts))
        super()._config_headers(session)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        lent = [table_response.config, *(entry.config for entry in table_response.storage_credentials)]
        for properties in lent:
            remember_issued(properties)
        table = super()._response_to_table(identifier_tuple, table_response)
        stamp(table, lent)
        return table

    def _create_session(self) -> Session:
        session = super()._create_session()
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, _Timed):
                session.mount(prefix, _Timed(adapter, self._timeouts))
        if isinstance(self._auth_manager, OAuth2AuthManager):
            given = self._auth_manager.token_provider
            self._auth_manager.token_provider = _TimedTokens(given, self._timeouts)
        return session
