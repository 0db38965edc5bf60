"""The command `tierberg warmup`."""

from __future__ import annotations

import os

import typer

from tierberg.exits import FAILURE


def warmup() -> None:
    """Compile kernels into this installation, so that no bridge of it compiles when it starts. Half a minute, once."""
    from rsm_bridge.serving.kernel_cache import installed_kernels

    folder = installed_kernels()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        typer.echo(f"tierberg: {folder}: {error.strerror}; run it as who installs, bridges only read", err=True)
        raise typer.Exit(FAILURE) from error
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # read when numba is loaded
    from converter.segment.warmup import warm
    from converter.values.proof.warmup import warm_values

    warm()
    warm_values()
    typer.echo(f"kernels are in {folder}")
