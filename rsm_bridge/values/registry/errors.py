"""Why there is no schema, grouped by what becomes of the values: they have no columns for now, or they wait."""

from __future__ import annotations

from typing import Any

from iceberg_catalog.connect.redaction import hide

_SAID_CHARS_MAX = 200


class SchemaLookupError(Exception):
    """There is no schema. The message names which, why, and what to do."""


class SchemaUnknownError(SchemaLookupError):
    """The registry says that it has none."""


class SchemaUnusableError(SchemaLookupError):
    """It has one that we cannot use: of another kind, beyond our limits, or what it refers to is not there."""


class RegistryUnavailableError(SchemaLookupError):
    """The registry does not say: it is away, too slow, fails, or refuses us. Asking again may help.

    Attributes:
        everybody: whether that concerns every schema, or, when False, the one that was asked for.
    """

    def __init__(self, message: str, *, everybody: bool = True) -> None:
        super().__init__(message)
        self.everybody = everybody


class AnswerTooLargeError(Exception):
    """An answer is larger than any schema that could be used."""


def says_none(error: Exception) -> bool:
    """Whether it is the registry's own word that there is no such schema, subject or version."""
    code = getattr(error, "error_code", None)
    return getattr(error, "http_status_code", None) == 404 and isinstance(code, int) and 40400 < code < 40500


def explained(error: Exception, what: str, where: str, secrets: frozenset[str]) -> SchemaLookupError:
    """What an exception of the registry's client means.

    Args:
        error: a SchemaRegistryError, or anything that the HTTP library or the client raised.
        what: that was asked for, for the message.
        where: the registry's addresses.
        secrets: what must not be quoted.
    """
    status: Any = getattr(error, "http_status_code", None)
    if isinstance(error, AnswerTooLargeError):
        return SchemaUnusableError(f"{what}: {error}")
    if not isinstance(status, int):
        said = _said(f"{type(error).__name__}: {error}", secrets)
        return RegistryUnavailableError(
            f"{what}: the schema registry at {where} does not answer ({said}); check that it runs and that "
            "schema_registry names it rightly"
        )
    said = _said(f"{status}, {getattr(error, 'error_message', '')}", secrets)
    if says_none(error):
        return SchemaUnknownError(f"{what}: the schema registry at {where} has none ({said})")
    if status == 404:
        # Not the registry's own word: a proxy's, or a path that is not its API. Nothing follows about the schema.
        advice = "is schema_registry.url the root of Confluent's API (Apicurio: …/apis/ccompat/v7)?"
    elif status == 401:
        advice = "check schema_registry.username and password, or bearer_token"
    elif status == 403:
        advice = "give the user of schema_registry the right to read it"
    elif status == 429:
        advice = "it gets too many requests; raise its limit"
    else:
        advice = "see its log"
    # Quick answers about one schema are no reason to leave the others alone.
    everybody = status in {401, 404, 429, 502, 503, 504}
    return RegistryUnavailableError(
        f"{what}: the schema registry at {where} answers {said}; {advice}", everybody=everybody
    )


def _said(text: str, secrets: frozenset[str]) -> str:
    first = hide(text, secrets).strip().partition("\n")[0]
    return first[:_SAID_CHARS_MAX]
