"""Keeps credentials out of messages: libraries and servers quote what they were given.

A value is a credential by the name of its key (`token`, `s3.secret-access-key`, `account_key`, …), or as the password
inside a URI. Short values are not hidden: `key` as a password would blank every other word of a log.

Servers hand out more while the process runs: tokens, and keys to a table's files. Those are remembered, the newest
ISSUED_SECRETS_MAX of them, and hidden in everything from then on. So are the settings' own, where a command remembers
them: errors are made in places that know no settings.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from iceberg_catalog.limits import ISSUED_SECRETS_MAX

#: What stands where a credential was.
HIDDEN: Final = "[hidden]"

_SECRET = re.compile(
    r"secret|password|passwd|token|credential|key|sas|signature|authorization|connection-string", re.IGNORECASE
)
_NOT_SECRET = re.compile(
    r"(url|uri|endpoint|file|path|arn|name|region|type|expires[-_]at|expires[-_]in)$", re.IGNORECASE
)
_CHARACTERS_MIN: Final = 6
_issuing = threading.Lock()
#: Replaced, never changed: readers take no lock.
_issued: tuple[str, ...] = ()
_settled: frozenset[str] = frozenset()


def secret_values(*properties: Mapping[str, Any]) -> frozenset[str]:
    """The credentials among nested properties, in every spelling a message may have them in."""
    found: set[str] = set()
    for given in properties:
        for secret in _secrets(given):
            found |= {secret, secret.strip(), json.dumps(secret)[1:-1]}
    return frozenset(secret for secret in found if len(secret) >= _CHARACTERS_MIN)


def remember_issued(properties: Mapping[str, Any]) -> None:
    """Hides the credentials among these properties, which a server has just issued, from now on."""
    global _issued  # noqa: PLW0603 like the log itself, one for the process
    with _issuing:
        news = secret_values(properties).difference(_issued)
        if news:
            _issued = (*_issued, *news)[-ISSUED_SECRETS_MAX:]


def remember_settings(secrets: frozenset[str]) -> None:
    """Hides these from now on, in place of those of other settings."""
    global _settled  # noqa: PLW0603 likewise
    _settled = secrets


def hide(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """The text with every credential replaced, those remembered too; the longest first, for one may hold another."""
    for secret in sorted(secrets.union(_issued, _settled), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str):
            yield from _in_uri(value)
            if _SECRET.search(name) and not _NOT_SECRET.search(name):
                yield value
                # OAuth2 credentials are `id:secret`; only one half may be quoted.
                yield value.partition(":")[2]


def _in_uri(value: str) -> Iterator[str]:
    if "://" not in value or "@" not in value:
        return
    try:
        password = urlsplit(value).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
