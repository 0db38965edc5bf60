"""What counts as a credential, and that none survives in a message."""

from __future__ import annotations

import json

import pytest

from iceberg_catalog.connect.redaction import HIDDEN, hide, secret_values


@pytest.mark.parametrize(
    "properties",
    [
        {"token": "verysecret"},
        {"credential": "someone:verysecret"},
        {"s3.secret-access-key": "verysecret"},
        {"secret_access_key": "verysecret"},
        {"AWS_SESSION_TOKEN": "verysecret"},
        {"account_key": "verysecret"},
        {"adls.sas-token": "verysecret"},
        {"header.Authorization": "verysecret"},
        {"auth": {"type": "oauth2", "oauth2": {"client_secret": "verysecret"}}},
        {"uri": "postgresql+psycopg2://someone:verysecret@db/lake"},
        {"proxy_url": "http://someone:very%73ecret@proxy:3128"},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_credentials_are_found_wherever_they_stand(properties: dict[str, object]) -> None:
    assert "verysecret" not in hide("refused: verysecret is wrong", secret_values(properties))


@pytest.mark.parametrize(
    "properties",
    [
        {"uri": "http://catalog:8181/verysecret"},
        {"oauth2-server-uri": "verysecret"},
        {"token_url": "verysecret"},
        {"region": "verysecret"},
        {"ssl": {"client": {"key_file": "verysecret"}}},
        {"expires_in": 3600},
        {"token": "short"},
    ],
)
def test_other_values_stay(properties: dict[str, object]) -> None:
    assert secret_values(properties) == frozenset()


def test_a_key_with_line_ends_is_hidden_in_json_too() -> None:
    key = "-----BEGIN\nabc\n-----END"
    secrets = secret_values({"service_account_key": key})
    assert hide(json.dumps({"error": f"bad {key}"}), secrets) == json.dumps({"error": f"bad {HIDDEN}"})


def test_the_longer_one_goes_first() -> None:
    secrets = secret_values({"token": "secret-one"}, {"token": "secret-one-and-more"})
    assert hide("secret-one-and-more", secrets) == HIDDEN
