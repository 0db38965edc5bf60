"""After the warm-up no copy, fetch or publish waits for a compiler."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Where nothing is cached all kernels are compiled here.
pytestmark = pytest.mark.timeout(900)


def test_every_kernel_is_compiled_in_every_form_that_is_used() -> None:
    """In a process of its own: in this one other tests have compiled some."""
    command = [sys.executable, "-m", "tests.support.warm_kernels"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=800).stdout
    assert json.loads(printed.splitlines()[-1]) == {"cold": [], "other": []}
