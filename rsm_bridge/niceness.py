"""Fetches first: worker threads of copies run at a lower priority of the operating system."""

from __future__ import annotations

import os
import threading

COPY_NICENESS = 10


def be_nice() -> None:
    """Lowers the calling thread's priority. Linux counts niceness per thread; elsewhere nothing happens."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), COPY_NICENESS)
