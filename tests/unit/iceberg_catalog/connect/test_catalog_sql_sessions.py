"""Limits that connections to a database are given. Against a real server: tests/e2e/test_e2e_postgres_catalog.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.connect.sql import TimedSqlCatalog

LIBPQ = {"connect_timeout": 2, "tcp_user_timeout": 30_000, "options": "-c statement_timeout=30000"}


@pytest.mark.parametrize(
    ("driver", "given", "limits"),
    [
        ("pg8000", {}, {"timeout": 30.0}),
        ("pg8000", {"timeout": 5}, {"timeout": 5}),
        ("psycopg", {}, LIBPQ),
        ("psycopg2", {}, LIBPQ),
        ("psycopg2", {"connect_timeout": "9"}, {**LIBPQ, "connect_timeout": "9"}),
    ],
)
def test_each_driver_by_its_own_names_and_the_uri_wins(
    driver: str, given: dict[str, Any], limits: dict[str, Any]
) -> None:
    catalog: Any = SimpleNamespace(
        engine=SimpleNamespace(dialect=SimpleNamespace(driver=driver)), _timeouts=Timeouts(1500, 30_000)
    )
    TimedSqlCatalog._limit_postgres(catalog, None, None, None, given)
    assert given == limits
