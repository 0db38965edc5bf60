"""The file of `tierberg advise --queries`: SQL statements parted by `;`, each with a name. Pure.

Comments, texts and quoted names are told apart as Spark's SQL does (SQL reference, "Literals", "Comments"), so that a
`;` or `{table}` inside one is left alone. Hints, `/*+ … */`, stay; other comments go. What is not closed goes on to the
end, and is Spark's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from repartition.errors import RepartitionError
from repartition.limits import QUERIES_MAX, QUERY_CHARS_MAX, QUERY_NAME_CHARS_MAX

#: Stands for the table.
TABLE: Final = "{table}"
_NAMED: Final = re.compile(r"--\s*name:[ \t]*(?P<name>.*?)\s*", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"""
      (?P<line>--[^\r\n]*)
    | (?P<open>/\*(?!\+))
    | (?P<quoted>[rR]"[^"]*(?:"|\Z) | [rR]'[^']*(?:'|\Z) | `[^`]*(?:`|\Z) | /\*\+.*?(?:\*/|\Z)
        | "(?:\\.|[^"\\])*+\\?(?:"|\Z) | '(?:\\.|[^'\\])*+\\?(?:'|\Z))
    | (?P<end>;)
    | (?P<table>\{table\})
    | (?P<word>[A-Za-z0-9_]+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKET: Final = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement. `parts`: its text without comments, where a table's name belongs between any two of them."""

    name: str
    parts: tuple[str, ...]

    def on(self, table: str) -> str:
        """The statement for one table, by its name as SQL takes it."""
        return table.join(self.parts)

    @property
    def text(self) -> str:
        """As in the file."""
        return self.on(TABLE)


def parse_queries(text: str) -> tuple[Query, ...]:
    """All statements, in order.

    Raises:
        RepartitionError: `no_queries` if there is none; `bad_queries` for too many, one that is too long, one without
            `{table}`, and two of one name.
    """
    found: list[Query] = []
    for name, parts in _statements(text):
        if len(found) == QUERIES_MAX:
            raise RepartitionError("bad_queries", f"there are more than {QUERIES_MAX} queries")
        query = Query(name or f"q{len(found) + 1}", parts)
        _check(query, {other.name for other in found})
        found.append(query)
    if not found:
        raise RepartitionError("no_queries", "there is no query in the file")
    return tuple(found)


def _check(query: Query, taken: set[str]) -> None:
    said = repr(query.name[:QUERY_NAME_CHARS_MAX])
    if len(query.name) > QUERY_NAME_CHARS_MAX or not query.name.isprintable():
        what = f"is longer than {QUERY_NAME_CHARS_MAX} characters, or has some that cannot be printed"
        raise RepartitionError("bad_queries", f"the name {said} {what}")
    if query.name in taken:
        raise RepartitionError("bad_queries", f"two queries are called {said}")
    if len(query.text) > QUERY_CHARS_MAX:
        raise RepartitionError("bad_queries", f"query {said} is longer than {QUERY_CHARS_MAX} characters")
    if len(query.parts) == 1:
        raise RepartitionError("bad_queries", f"query {said} does not name {TABLE}, which stands for the table")


def _statements(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names, empty where none is given, and texts; those of white space alone are left out."""
    name = ""
    parts: list[list[str]] = [[]]
    for kind, piece in _tokens(text):
        if kind == "end":
            if not _blank(parts):
                yield name, _joined(parts)
                name = ""
            parts = [[]]
        elif kind == "table":
            parts.append([])
        elif kind == "line":
            named = _NAMED.fullmatch(piece)
            if named is not None and _blank(parts):
                name = named["name"]
            parts[-1].append(" ")
        else:
            parts[-1].append(piece)


def _blank(parts: list[list[str]]) -> bool:
    return len(parts) == 1 and not any(piece.strip() for piece in parts[0])


def _joined(parts: list[list[str]]) -> tuple[str, ...]:
    joined = ["".join(pieces) for pieces in parts]
    joined[0], joined[-1] = joined[0].lstrip(), joined[-1].rstrip()
    return tuple(joined)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kinds and texts of everything up to the end, with one more `end`."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:  # `.` matches whatever nothing else does
            break
        kind, at = str(found.lastgroup), found.end()
        if kind == "open":
            at = _comment_end(text, at)
            yield "other", " "
        else:
            yield kind, found[0]
    yield "end", ""


def _comment_end(text: str, at: int) -> int:
    """Where a comment that was opened before `at` ends; comments nest. The end of the text where it does not."""
    depth = 1
    for found in _BRACKET.finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)
