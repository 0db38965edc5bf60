"""What a process uses now: to be compared with what it used before it was tormented."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """Threads, resident memory, and open files and sockets of a process."""

    threads: int
    rss_bytes: int
    files: int

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.rss_bytes / MIB:.0f} MiB, {self.files} files"

    def within(self, before: Footprint, *, threads: int, rss_mib: int, files: int) -> bool:
        """Whether it is at most so much more than `before`."""
        return (
            self.threads <= before.threads + threads
            and self.rss_bytes <= before.rss_bytes + rss_mib * MIB
            and self.files <= before.files + files
        )


def footprint(pid: int) -> Footprint:
    process = psutil.Process(pid)
    with process.oneshot():
        return Footprint(process.num_threads(), process.memory_info().rss, process.num_fds())
