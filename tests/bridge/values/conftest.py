"""Values beside their columns, and in them alone: modules that ask for `policy` run with both."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=["always", "proven"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)
