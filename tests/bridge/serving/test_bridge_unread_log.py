"""A bridge whose log nobody reads any more serves as before, and ends when it is told to."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of

PIPE_BYTES = 4096


def unread_bytes(reader: int) -> int:
    return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_log_that_nobody_reads_costs_no_call_and_no_stop(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    words = ["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tierberg.cli", *words], stdout=subprocess.PIPE, stderr=writer, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address = dict(word.split("=", 1) for word in ready.split()[2:])["listen"]
        with ShimClient(address) as shim:
            segment = shim.copied(segment_of(LogBuilder().fill(batches=3)))
            for _ in range(60):
                assert shim.fetch(segment) == segment.data
        eventually(lambda: unread_bytes(reader) > PIPE_BYTES / 2)
        # As a terminal does that is closed; under nohup that is ignored, by the bridge too.
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        process.send_signal(signal.SIGTERM if ignored else signal.SIGHUP)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        os.close(writer)
        os.close(reader)
