"""A REST catalog that closes connections while they are idle, as servers with a keep-alive time-out do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from requests.exceptions import ConnectionError as RequestsConnectionError

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from tests.support.http_loop import AnyMethod, served

QUICK = Timeouts(1000, 2000)


class OneAnswerEach(AnyMethod):
    """Keeps a connection after its first request, and closes it on the second without an answer: it was closed idle."""

    answered = False
    seen: list[str] = []

    def serve(self) -> None:
        self.seen.append(self.command)
        if self.answered:
            self.close_connection = True
            return
        self.answered = True
        self.body()
        self.answer(200, [], json.dumps({"defaults": {}, "overrides": {}, "namespaces": []}).encode())


@pytest.fixture
def uri() -> Iterator[str]:
    OneAnswerEach.seen.clear()
    with served(OneAnswerEach) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_connection_closed_while_idle_is_no_outage(uri: str) -> None:
    catalog = open_catalog(CatalogSettings("r", {"type": "rest", "uri": uri}, QUICK))
    for _ in range(3):
        assert catalog.list_namespaces() == []
    catalog.close()


def test_what_changes_something_is_not_sent_twice(uri: str) -> None:
    catalog = open_catalog(CatalogSettings("r", {"type": "rest", "uri": uri}, QUICK))
    catalog.list_namespaces()
    with pytest.raises(RequestsConnectionError):
        catalog.create_namespace("n")
    assert OneAnswerEach.seen.count("POST") == 1
    catalog.close()
