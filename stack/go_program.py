"""Programs from the Go module registry, built once into `build/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from stack.errors import StackError
from stack.limits import GO_BUILD_S
from stack.paths import BUILD


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A server that `go install` makes; the program's name is the last part of `package`."""

    package: str
    version: str

    @property
    def _path(self) -> Path:
        name = self.package.rpartition("/")[2]
        return BUILD / f"{name}-{self.version}" / name

    def can_be_had(self) -> bool:
        """Whether the program is there, or Go, which builds it."""
        return self._path.exists() or shutil.which("go") is not None

    def path(self) -> Path:
        """The program. The first call builds it: minutes.

        Raises:
            StackError: Go is not there, or the build failed.
        """
        target = self._path
        if target.exists():
            return target
        go = shutil.which("go")
        if go is None:
            raise StackError(f"Go is needed to build {target.name}")
        partial = BUILD / f"{target.parent.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        argv = [go, "install", "-trimpath", f"{self.package}@{self.version}"]
        env = {**os.environ, "GOBIN": str(partial)}
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=GO_BUILD_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"building {target.name} took longer than {GO_BUILD_S:.0f} s") from error
        if done.returncode != 0:
            raise StackError(f"cannot build {target.name}:\n{(done.stdout + done.stderr)[-2000:]}")
        partial.rename(target.parent)
        return target
