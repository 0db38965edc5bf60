"""Programs that are run to their end, and folders that they fill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tierberg.stack.errors import StackError

_LAST_WORDS_CHARS = 2000


def run_to_end(
    what: str,
    argv: Sequence[str],
    *,
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Runs a program.

    Args:
        what: the message when it fails begins with `cannot` and this.
        argv: the program and its arguments.
        seconds: how long it may take.
        env: variables beside our own.
        cwd: where it runs; None: where we do.

    Raises:
        StackError: it could not be started, took too long, or failed; with its last words.
    """
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"cannot {what}: it took longer than {seconds:.0f} s") from error
    except OSError as error:
        raise StackError(f"cannot {what}: {error}") from error
    if done.returncode != 0:
        raise StackError(f"cannot {what}:\n{(done.stdout + done.stderr)[-_LAST_WORDS_CHARS:]}")


@contextlib.contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which becomes `folder` at the end of the block; after an error it does not.

    Several processes may fill one each: what is first stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.partial-", dir=folder.parent) as own:
        partial = Path(own) / folder.name
        partial.mkdir()
        yield partial
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
