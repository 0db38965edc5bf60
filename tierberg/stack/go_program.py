"""Programs from the Go module registry, built once into `build/`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tierberg.stack.command import appearing, run_to_end
from tierberg.stack.errors import StackError
from tierberg.stack.limits import GO_BUILD_S
from tierberg.stack.paths import BUILD


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
        with appearing(target.parent) as folder:
            argv = [go, "install", "-trimpath", f"{self.package}@{self.version}"]
            run_to_end(f"build {target.name}", argv, seconds=GO_BUILD_S, env={"GOBIN": str(folder)})
        return target
