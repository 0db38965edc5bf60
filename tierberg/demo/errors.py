"""The one error of this room."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message says what to do."""
