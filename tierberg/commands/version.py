"""The command `tierberg version`."""

from __future__ import annotations

import typer


def version() -> None:
    """Print the release."""
    from importlib.metadata import version as release

    typer.echo(f"tierberg {release('tierberg')}")
