"""`tierberg bucket init` on moto: bucket and rule are made once, other rules stay, dangers are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from rsm_bridge.storage.bucket import RULE
from tests.support.s3_server import S3Server, moto_server
from tierberg.cli import app
from tierberg.stack.servers.versitygw import VersityGateway, can_be_had

OTHERS = {
    "ID": "theirs",
    "Status": "Enabled",
    "Filter": {"Prefix": "logs/"},
    "Expiration": {"Days": 30},
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture
def endpoint(s3: S3Server) -> str:
    return s3.endpoint


@pytest.fixture
def client(s3: S3Server) -> Iterator[Any]:
    with closing(s3.client()) as made:
        yield made


def init(folder: Path, endpoint: str, url: str, *arguments: str, **options: str) -> Result:
    given = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b", **options}
    config = folder / "tierberg.yaml"
    config.write_text(yaml.safe_dump({"store": {"url": url, "options": {**given, "allow_http": True}}}))
    return CliRunner().invoke(app, ["bucket", "init", "--config", str(config), *arguments])


def rules(client: Any, bucket: str) -> dict[str, dict[str, Any]]:
    return {rule["ID"]: rule for rule in client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]}


def test_bucket_and_rule_are_made_once(tmp_path: Path, endpoint: str, client: Any) -> None:
    first = init(tmp_path, endpoint, "s3://new-one/tierberg")
    assert first.exit_code == 0, first.output
    assert "bucket new-one was made" in first.output
    assert "unfinished uploads under tierberg/ end after 2 d: the rule was set" in first.output
    made = rules(client, "new-one")
    assert made.keys() == {f"{RULE}:tierberg/"}
    rule = made[f"{RULE}:tierberg/"]
    assert rule["Filter"] == {"Prefix": "tierberg/"}
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    assert "Expiration" not in rule

    again = init(tmp_path, endpoint, "s3://new-one/tierberg")
    assert again.exit_code == 0
    assert "bucket new-one is there" in again.output
    assert "the rule is there" in again.output
    assert rules(client, "new-one") == made


def test_rules_of_others_stay_and_ours_can_change(tmp_path: Path, endpoint: str, client: Any) -> None:
    client.create_bucket(Bucket="shared")
    client.put_bucket_lifecycle_configuration(Bucket="shared", LifecycleConfiguration={"Rules": [OTHERS]})
    assert init(tmp_path, endpoint, "s3://shared/one").exit_code == 0
    assert init(tmp_path, endpoint, "s3://shared/two").exit_code == 0
    changed = init(tmp_path, endpoint, "s3://shared/two", "--abandoned-days", "7")
    assert "end after 7 d: the rule was set" in changed.output
    found = rules(client, "shared")
    assert found.keys() == {"theirs", f"{RULE}:one/", f"{RULE}:two/"}
    assert found["theirs"]["Expiration"] == {"Days": 30}
    assert found[f"{RULE}:two/"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


@pytest.mark.parametrize("prefix", ["", "tierberg/", "tierberg/data/"])
def test_a_rule_that_would_delete_history_is_named(tmp_path: Path, endpoint: str, client: Any, prefix: str) -> None:
    bucket = f"danger-{len(prefix)}"
    client.create_bucket(Bucket=bucket)
    rule = {**OTHERS, "Filter": {"Prefix": prefix}}
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    done = init(tmp_path, endpoint, f"s3://{bucket}/tierberg")
    assert done.exit_code == 1
    assert "rule 'theirs' deletes objects under" in done.output
    assert f"{RULE}:tierberg/" in rules(client, bucket)


def test_a_store_that_is_no_bucket_is_refused(tmp_path: Path) -> None:
    done = init(tmp_path, "http://127.0.0.1:1", "gs://bucket")
    assert done.exit_code == 2
    assert "bucket init is for S3" in done.output
    assert CliRunner().invoke(app, ["bucket", "init"]).exit_code == 2


def test_a_store_that_does_not_answer_is_said_without_its_keys(tmp_path: Path) -> None:
    done = init(tmp_path, "http://127.0.0.1:1", "s3://bucket", secret_access_key="hunter2-hunter2")
    assert done.exit_code == 3
    assert "tierberg: bucket bucket: " in done.output
    assert "hunter2" not in done.output


@pytest.mark.e2e
@pytest.mark.timeout(1300)
def test_a_store_without_lifecycle_rules_gets_its_bucket(tmp_path: Path) -> None:
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    server = VersityGateway(tmp_path / "gateway")
    server.start()
    try:
        keys = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
        done = [init(tmp_path, server.endpoint, "s3://made/tierberg", **keys) for _ in range(2)]
    finally:
        server.stop()
    assert [one.exit_code for one in done] == [0, 0], done[0].output
    assert "bucket made was made" in done[0].output
    assert "bucket made is there" in done[1].output
    assert "end abandoned uploads by its own means" in done[0].output


def test_an_age_below_a_day_is_refused(tmp_path: Path, endpoint: str) -> None:
    assert init(tmp_path, endpoint, "s3://bucket", "--abandoned-days", "0").exit_code == 2
