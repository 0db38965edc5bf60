"""How commands end: one table of exit codes for all of them (docs/operations.md), and one line about why.

A script must be able to tell damage from a typo, and both from a store that is away for a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import typer

from converter.errors import TierbergError
from rsm_bridge.errors import may_pass

FINE: Final = 0
FINDING: Final = 1  # damage, something that needs a person, or a refusal because of what is stored
USAGE: Final = 2  # flags, settings, or the name of something that is not there; nothing was done
FAILURE: Final = 3  # store, catalog, brokers or Spark did not do what they were asked; the same again may work

#: Packages whose errors say what became of a request of ours.
_CLIENTS: Final = frozenset({"boto3", "botocore", "obstore", "pyarrow", "pyiceberg", "requests", "sqlalchemy"})
_USAGE_KINDS = frozenset(
    {"not_found", "bad_settings", "bad_rule", "no_source", "no_spark", "no_queries", "bad_queries", "no_picture"}
)


def exit_code(error: TierbergError) -> int:
    """The code for an error, by its kind."""
    if may_pass(error):
        return FAILURE
    return USAGE if error.kind in _USAGE_KINDS else FINDING


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Ends a command that met one of our errors, or one of a store or catalog, with one line and its code.

    Other errors are bugs, and tracebacks.
    """
    try:
        yield
    except TierbergError as error:
        raise _ended(str(error), exit_code(error)) from error
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        # A full disk, a database that is locked, a service that answers with an error in the middle.
        from rsm_bridge.storage.object_store import first_line

        raise _ended(f"store or catalog failed on the way, run it again: {first_line(error)}", FAILURE) from error


def _ended(said: str, code: int) -> typer.Exit:
    from iceberg_catalog.connect.redaction import hide

    typer.echo(f"tierberg: {hide(said)}", err=True)
    return typer.Exit(code)
