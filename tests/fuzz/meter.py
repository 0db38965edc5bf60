"""How much memory a process has and had at its peak: read for every input, so the files stay open."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATUS_BYTES_MAX = 8192


class Meter:
    """Of this process; the kernel keeps the peak. One for each process, for as long as it runs."""

    def __init__(self) -> None:
        self._size, self._status = (os.open(f"/proc/self/{name}", os.O_RDONLY) for name in ("statm", "status"))
        self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY)

    def address_space(self) -> int:
        """In bytes."""
        return self._pages(0)

    def begin(self) -> int:
        """Forgets the peak; what is resident now, in bytes."""
        os.pwrite(self._reset, b"5", 0)
        return self._pages(1)

    def peak(self) -> int:
        """The most that was resident since :meth:`begin`, in bytes."""
        _, _, after = os.pread(self._status, _STATUS_BYTES_MAX, 0).partition(b"VmHWM:")
        return int(after.split(maxsplit=1)[0]) * 1024

    def _pages(self, field: int) -> int:
        return int(os.pread(self._size, 200, 0).split()[field]) * _PAGE_BYTES
