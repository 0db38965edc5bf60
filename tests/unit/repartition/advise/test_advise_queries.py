"""The file of queries."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from repartition.advise.advise import first_line, read_file
from repartition.advise.queries import Query, parse_queries
from repartition.errors import RepartitionError
from repartition.limits import QUERIES_FILE_BYTES_MAX, QUERIES_MAX, QUERY_CHARS_MAX, QUERY_NAME_CHARS_MAX
from tierberg.cli import app

FILE = r"""
-- A comment; with a semicolon and {table}
-- name: one day
SELECT /*+ REPARTITION(2) */ `a;b`, 'it''s; {table}', "x\";y" -- name: not this one
FROM {table} /* of /* nested; */ {table} */ WHERE a = r'\';

SELECT count(*) FROM {table} a JOIN {table} b
  ON a.id = b.id;
;; -- name: Ümlaut
/* only; */ TABLE {table}
"""


def test_statements_names_and_comments() -> None:
    first, second, third = parse_queries(FILE)
    assert (first.name, second.name, third.name) == ("one day", "q2", "Ümlaut")
    said = " ".join(first.on("T").split())
    assert said == r"""SELECT /*+ REPARTITION(2) */ `a;b`, 'it''s; {table}', "x\";y" FROM T WHERE a = r'\'"""
    assert second.on("T") == "SELECT count(*) FROM T a JOIN T b\n  ON a.id = b.id"
    assert third.text == "TABLE {table}"


@pytest.mark.parametrize("text", ["", " \n", ";;;", "-- name: x\n", "/* SELECT 1 FROM {table};", "--{table}"])
def test_no_query(text: str) -> None:
    with pytest.raises(RepartitionError) as raised:
        parse_queries(text)
    assert raised.value.kind == "no_queries"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1", "does not name {table}"),
        ("SELECT * FROM {table}; SELECT '{table}'", "query 'q2' does not name"),
        ("SELECT * FROM { table }", "does not name"),
        (";".join(["SELECT * FROM {table}"] * (QUERIES_MAX + 1)), f"more than {QUERIES_MAX}"),
        ("SELECT * FROM {table} WHERE a = '" + "x" * QUERY_CHARS_MAX + "'", "longer than"),
        ("-- name: a\nTABLE {table};\n--NAME:a\nTABLE {table}", "two queries are called 'a'"),
        ("-- name: q2\nTABLE {table};TABLE {table}", "two queries are called 'q2'"),
        (f"-- name: {'n' * (QUERY_NAME_CHARS_MAX + 1)}\nTABLE {{table}}", "the name"),
        ("-- name: a\x1b[2Jb\nTABLE {table}", "cannot be printed"),
    ],
)
def test_bad_queries(text: str, said: str) -> None:
    with pytest.raises(RepartitionError) as raised:
        parse_queries(text)
    assert said in str(raised.value)
    assert raised.value.kind == "bad_queries"


def test_as_many_and_as_long_as_may_be() -> None:
    assert len(parse_queries(";".join(["TABLE {table}"] * QUERIES_MAX))) == QUERIES_MAX
    longest = "TABLE {table} -- " + "x" * QUERY_CHARS_MAX
    assert parse_queries(longest)[0].text == "TABLE {table}"


PIECES = st.sampled_from(
    ["'", '"', "`", ";", "--", "/*", "/*+", "*/", "\n", "\\", "r'", "{table}", "{", "é", "SELECT ", " "]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
def test_whatever_the_file_says_it_is_parsed_or_refused(text: str) -> None:
    found: tuple[Query, ...] = ()
    with suppress(RepartitionError):
        found = parse_queries(text)
    for query in found:
        assert query.on("{table}") == query.text
        assert query.text.count("{table}") >= len(query.parts) - 1 >= 1


LITERALS = st.text(alphabet='ab;-/*{}"` \n', max_size=8).map(lambda text: f"'{text}'")
NAMES = st.text(alphabet="ab;-/*{}'\" ", max_size=8).map(lambda text: f"`{text}`")


@given(st.lists(st.lists(LITERALS | NAMES, max_size=4), min_size=1, max_size=5))
def test_nothing_within_quotes_parts_statements(statements: list[list[str]]) -> None:
    wanted = [" , ".join(["SELECT {table}", *pieces]) for pieces in statements]
    found = parse_queries(" ; ".join(f"{text} -- ' ;\n" for text in wanted))
    assert [query.text for query in found] == wanted
    assert [query.name for query in found] == [f"q{number + 1}" for number in range(len(wanted))]


def test_a_large_file_of_open_ends_is_parsed_at_once() -> None:
    for piece in ("/*+ ", "/* ", "'\\", "x", "`", '"\n'):
        with pytest.raises(RepartitionError):
            parse_queries(piece * (QUERIES_FILE_BYTES_MAX // 8 // len(piece)))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    for data, kind in (
        (None, "no_queries"),
        (b"\xff\xfe\0", "no_queries"),
        (b" " * (QUERIES_FILE_BYTES_MAX + 1), "bad_queries"),
    ):
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(RepartitionError) as raised:
            read_file(path)
        assert raised.value.kind == kind
    path.write_bytes(b"\xef\xbb\xbfTABLE {table}")
    assert read_file(path) == "TABLE {table}"


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    given = ["advise", "orders", "--queries", str(path), "--picture", str(tmp_path / "p.png")]
    missing = CliRunner().invoke(app, given)
    assert (missing.exit_code, "file of queries cannot be read" in missing.stderr) == (2, True)
    path.write_text("SELECT 1", encoding="utf-8")
    nameless = CliRunner().invoke(app, given)
    assert (nameless.exit_code, "does not name {table}" in nameless.stderr) == (2, True)
    nowhere = CliRunner().invoke(app, [*given[:-1], str(tmp_path / "none" / "p.png")])
    assert (nowhere.exit_code, "folder must be there" in nowhere.stderr) == (2, True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("[NO_COLUMN] `x` is not there; line 1\n'Project\n", "[NO_COLUMN] `x` is not there; line 1"),
        ("\n[PARSE] wrong\n\n== SQL ==\n", "[PARSE] wrong"),
        ("An error occurred while calling o1.sql.\n: java.lang.Error: no\n\tat x", "java.lang.Error: no"),
        ("", "ValueError"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_errors_in_one_line(error: str, said: str) -> None:
    assert first_line(ValueError(error)) == said
