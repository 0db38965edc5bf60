"""Fetches first: threads that copy, publish or read ahead run at a lower priority of the operating system."""

from __future__ import annotations

import os
import threading

COPY_NICENESS = 10
AHEAD_NICENESS = 5


def be_nice(niceness: int = COPY_NICENESS) -> None:
    """Lowers the calling thread's priority. Linux counts niceness per thread; elsewhere nothing happens."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
