"""The command `tierberg jar`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from tierberg.exits import USAGE


def jar(
    output: Annotated[Path, typer.Option("--output", help="Folder to copy it to; made if it is not there.")] = Path(),
) -> None:
    """Copy the one jar that a broker needs out of this installation, and print its path."""
    from tierberg.stack.errors import StackError
    from tierberg.stack.jars import shim_jar

    try:
        found = shim_jar()
        output.mkdir(parents=True, exist_ok=True)
        copied = Path(shutil.copy(found, output))
    except StackError as error:
        typer.echo(f"tierberg: {error}", err=True)
        raise typer.Exit(USAGE) from error
    except OSError as error:
        typer.echo(f"tierberg: --output {output}: {error.strerror}", err=True)
        raise typer.Exit(USAGE) from error
    typer.echo(copied.resolve())
