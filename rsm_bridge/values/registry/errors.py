"""Why there is no schema, grouped by what becomes of the values: they have no columns for now, or they wait.

What the registry answers about one schema, however wrong, is about that one: others are asked for as before. That it
is away, overloaded, or does not know us is about all of them.
"""

from __future__ import annotations

from typing import Any

from iceberg_catalog.connect.redaction import hide

_SAID_CHARS_MAX = 200
#: Statuses by which a registry, or what stands before it, says nothing about the schema that was asked for.
_OUTAGES = frozenset({401, 429, 502, 503, 504})
_IS_IT_THE_ROOT = "is schema_registry.url the root of Confluent's API (Apicurio: …/apis/ccompat/v7)?"


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


class SchemaRefusedError(RegistryUnavailableError):
    """The registry answers, and neither with this schema nor that there is none. That is about this schema alone.

    Attributes:
        answer: what it says, for people.
        sort: what such answers have in common: an HTTP status, or the kind of error that reading the answer ends with.
        malformed: the answer is a schema's, and none can be read from it; to wait does not mend that.
        tries: such answers to this question so far, one after the other.
    """

    def __init__(self, message: str, *, answer: str = "", sort: str = "", malformed: bool = False) -> None:
        super().__init__(message, everybody=False)
        self.answer = answer
        self.sort = sort
        self.malformed = malformed
        self.tries = 1


class AnswerTooLargeError(Exception):
    """An answer is larger than any schema that could be used."""


def says_none(error: Exception) -> bool:
    """Whether it is the registry's own word that there is no such schema, subject or version."""
    code = getattr(error, "error_code", None)
    return getattr(error, "http_status_code", None) == 404 and isinstance(code, int) and 40400 < code < 40500


def explained(error: Exception, what: str, where: str, secrets: frozenset[str], *, answered: bool) -> SchemaLookupError:
    """What an exception of the registry's client means.

    Args:
        error: a SchemaRegistryError, or anything that the HTTP library or the client raised.
        what: that was asked for, for the message.
        where: the registry's addresses.
        secrets: what must not be quoted.
        answered: an HTTP response came, whole.
    """
    status: Any = getattr(error, "http_status_code", None)
    if isinstance(error, AnswerTooLargeError):
        return SchemaUnusableError(f"{what}: {error}")
    if not isinstance(status, int):
        said = _said(f"{type(error).__name__}: {error}", secrets)
        if not answered:
            return RegistryUnavailableError(
                f"{what}: the schema registry at {where} does not answer ({said}); check that it runs and that "
                "schema_registry names it rightly"
            )
        answer = f"what is no schema ({said})"
        return SchemaRefusedError(
            f"{what}: the schema registry at {where} answers {answer}; {_IS_IT_THE_ROOT}",
            answer=answer,
            sort=type(error).__name__,
            malformed=not isinstance(error, ValueError),  # those are no JSON: some page of a proxy
        )
    said = _said(f"{status}, {getattr(error, 'error_message', '')}", secrets)
    if says_none(error):
        return SchemaUnknownError(f"{what}: the schema registry at {where} has none ({said})")
    message = f"{what}: the schema registry at {where} answers {said}; {_advice(status)}"
    if status in _OUTAGES:
        return RegistryUnavailableError(message)
    return SchemaRefusedError(message, answer=said, sort=str(status))


def _advice(status: int) -> str:
    if status == 401:
        return "check schema_registry.username and password, or bearer_token"
    if status == 403:
        return "give the user of schema_registry the right to read it"
    if status == 429:
        return "it gets too many requests; raise its limit"
    # Not the registry's own word: a proxy's, or a path that is not its API. Nothing follows about the schema.
    return _IS_IT_THE_ROOT if status == 404 or status < 400 else "see its log"


def _said(text: str, secrets: frozenset[str]) -> str:
    first = hide(text, secrets).strip().partition("\n")[0]
    return first[:_SAID_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
