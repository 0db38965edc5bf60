"""Words for what came of an input, alike for inputs that took the same way."""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{16,}|-?\d[\d,._]*|'[^']*'|\"[^\"]*\"|`[^`]*`")


def worded(error: BaseException) -> str:
    """Kind and message of an error without what varies from input to input."""
    kind = getattr(error, "kind", "")
    return f"{type(error).__name__}:{kind}:{_VARIABLE.sub('#', str(error))[:80]}"
