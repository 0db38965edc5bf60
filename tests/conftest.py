"""What every test shares."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Compiled kernels are kept in the project folder, so that only the first run pays for them.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent.parent / "build" / "numba"))

# A busy machine is slow, not wrong; examples are limited in number instead.
settings.register_profile("tierberg", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("quick", settings.get_profile("tierberg"), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tierberg"))


def pytest_sessionstart() -> None:
    """Compiles the kernels when there are none: on a busy machine that takes longer than a test waits for a copy."""
    if not any(Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbi")):
        from converter.errors import SegmentError
        from converter.segment.warmup import warm

        # What comes of the kernels is for the tests to judge; here they are only compiled.
        with contextlib.suppress(SegmentError):
            warm()
