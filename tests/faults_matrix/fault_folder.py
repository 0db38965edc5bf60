"""The harness's end of `TIERBERG_FAULT_FOLDER`: orders are laid down, marks are waited for, stopped threads let go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iceberg_catalog.failpoints import Order
from tierberg.stack.waiting import wait_for

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class FaultFolder:
    """One folder, read by a bridge and by commands."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """What processes that are to obey are started with."""
        return {"TIERBERG_FAULT_FOLDER": str(self.path)}

    def lay(self, point: str, order: Order) -> None:
        """Takes effect at once, and readers never see half a file. What was at the point before is over."""
        for suffix in ("hit", "go"):
            (self.path / f"{point}.{suffix}").unlink(missing_ok=True)
        written = self.path / f"{point}.new"
        written.write_text(order.encode(), encoding="utf-8")
        written.rename(self.path / f"{point}.fault")

    def was_hit(self, point: str) -> bool:
        """Whether somebody has reached the point and carried out its order."""
        return (self.path / f"{point}.hit").exists()

    def wait_hit(self, point: str, timeout_s: float) -> None:
        """Until it was. Raises StackError when nobody came."""
        wait_for(f"{point} to be reached", lambda: self.was_hit(point), timeout_s, _POLL_S)

    def go(self, point: str) -> None:
        """Who was stopped there goes on."""
        (self.path / f"{point}.go").touch()

    def clear(self) -> None:
        """No orders; whoever is stopped goes on."""
        for path in self.path.glob("*.fault"):
            path.unlink(missing_ok=True)
        for path in self.path.glob("*.hit"):
            path.with_suffix(".go").touch()
