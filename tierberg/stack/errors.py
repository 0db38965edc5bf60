"""The one error of this room."""

from __future__ import annotations


class StackError(Exception):
    """A server of the local stack did not do what it was told within its deadline; the message quotes its log."""
