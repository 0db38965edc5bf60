"""What is told of a store's refusal: the object, and the store's own reason, however a client quotes it."""

from __future__ import annotations

import time

import pytest

from iceberg_catalog.connect.redaction import remember_settings
from rsm_bridge.limits import STORE_REFUSAL_SECONDS_MIN
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.storage.writes import StoreWrites

KEY = f"data/{'7f' * 16}/{'0' * 20}-{'9' * 20}-{'ab' * 16}-{'cd' * 16}.parquet"
HEAD = (
    f"Generic S3 error: Error performing PUT http://u:Passw0rd!@store.example.com/bucket/{KEY} in 1.2s, after 5 "
    "retries, max_retries: 5, retry_timeout: 120s  - Server returned non-2xx status code: "
)
REFUSED = (
    'Insufficient Storage: <?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>QuotaExceeded</Code>'
    "<Message>the bucket is full</Message><Resource>/bucket</Resource></Error>\n\nDebug source:\nGeneric { x: 1 }"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REFUSED, "Insufficient Storage: QuotaExceeded: the bucket is full"),
        (REFUSED.replace("\n<Error>", "<Error>"), "Insufficient Storage: QuotaExceeded: the bucket is full"),
        ("403 Forbidden: <Error><Code>AccessDenied</Code></Error>", "AccessDenied"),
        ("disk full\nDebug source", "disk full"),
        ("", "OSError"),
    ],
)
def test_the_reason_is_in_one_line(text: str, said: str) -> None:
    found = first_line(OSError(text))
    assert said in found
    assert "\n" not in found
    assert "Debug" not in found
    assert "<?xml" not in found


def test_a_password_of_the_endpoint_is_not_told() -> None:
    remember_settings(frozenset({"Passw0rd!"}))
    try:
        assert "Passw0rd!" not in first_line(OSError(HEAD + REFUSED))
    finally:
        remember_settings(frozenset())


def test_a_long_refusal_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = StoreWrites()
    for _ in range(2):
        told.failed(f"{KEY}: {first_line(OSError(HEAD + 'x' * 900 + REFUSED))}")
        now[0] += STORE_REFUSAL_SECONDS_MIN
    said = told.refusal()
    assert said is not None
    assert said.startswith(KEY)
    assert said.endswith("QuotaExceeded: the bucket is full")
    assert len(said) < 900
