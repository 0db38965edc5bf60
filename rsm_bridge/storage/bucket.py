"""`tierberg bucket init`: makes the store's bucket and the rule that ends abandoned uploads.

A copy that was cut off leaves the parts of its upload behind; the store charges for them and no listing shows them.
Only the store itself can find them all, by a lifecycle rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from iceberg_catalog.connect.redaction import hide
from rsm_bridge.config.secrets import revealed, settings_secrets
from rsm_bridge.config.settings import Settings, StoreSettings
from rsm_bridge.errors import SettingsError, StoreError
from rsm_bridge.limits import BUCKET_CONNECT_SECONDS, BUCKET_REQUEST_SECONDS, BUCKET_TRIES
from rsm_bridge.storage.object_store import first_line

RULE = "tierberg-abandoned-uploads"


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What was found and done.

    Attributes:
        done: one sentence a step.
        dangers: rules of others that will delete history; a person is needed.
    """

    done: tuple[str, ...]
    dangers: tuple[str, ...]


def init_bucket(settings: Settings, days: int) -> BucketReport:
    """Makes what is missing; run again, it changes nothing. Other lifecycle rules stay as they are.

    Args:
        settings: its `store` names bucket, prefix, endpoint and credentials; without keys boto3's usual chain is used.
        days: age at which an unfinished upload ends; a copy's deadline is far below the one day that is the least.

    Raises:
        SettingsError: the store is no S3 bucket.
        StoreError: the store refused or did not answer.
    """
    store = settings.store
    if store is None or urlsplit(store.url).scheme not in ("s3", "s3a"):
        raise SettingsError("bucket init is for S3: store.url must be s3://bucket/prefix")
    parts = urlsplit(store.url)
    prefix = f"{parts.path.strip('/')}/" if parts.path.strip("/") else ""
    secrets = settings_secrets(settings)
    try:
        with _client(store) as client:
            done = [_ensure_bucket(client, parts.netloc)]
            rules = _rules(client, parts.netloc)
            if rules is None:
                done.append("this store takes no lifecycle rules: end abandoned uploads by its own means")
            else:
                done.append(_ensure_rule(client, parts.netloc, prefix, days, rules))
    except (BotoCoreError, ClientError, ValueError) as error:
        raise StoreError(f"bucket {parts.netloc}: {hide(first_line(error), secrets)}") from None
    return BucketReport(tuple(done), tuple(_dangers(rules or [], prefix)))


@contextlib.contextmanager
def _client(store: StoreSettings) -> Iterator[Any]:
    """A boto3 client from obstore's options, which may carry the prefix `aws_` and any case."""
    options = {name.lower().removeprefix("aws_"): value for name, value in revealed(store.options).items()}
    virtual = options.get("virtual_hosted_style_request", "false").lower() == "true"
    client = boto3.client(
        "s3",
        endpoint_url=_first(options, "endpoint", "endpoint_url"),
        region_name=_first(options, "region", "default_region"),
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=_first(options, "session_token", "token"),
        verify=_first(options, "root_certificate"),
        config=Config(
            connect_timeout=BUCKET_CONNECT_SECONDS,
            read_timeout=BUCKET_REQUEST_SECONDS,
            retries={"total_max_attempts": BUCKET_TRIES, "mode": "standard"},
            s3={"addressing_style": "virtual" if virtual else "path" if "endpoint" in options else "auto"},
        ),
    )
    try:
        yield client
    finally:
        client.close()


def _first(options: Mapping[str, str], *names: str) -> str | None:
    return next((options[name] for name in names if options.get(name)), None)


def _ensure_bucket(client: Any, bucket: str) -> str:
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
    else:
        return f"bucket {bucket} is there"
    region = client.meta.region_name
    # The oldest region is the one that must not be named.
    elsewhere = region not in (None, "us-east-1", "aws-global")
    extra = {"CreateBucketConfiguration": {"LocationConstraint": region}} if elsewhere else {}
    try:
        client.create_bucket(Bucket=bucket, **extra)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":  # somebody made it just now
            raise
    return f"bucket {bucket} was made"


def _rules(client: Any, bucket: str) -> list[dict[str, Any]] | None:
    """The bucket's lifecycle rules; None from a store that knows none."""
    try:
        return list(client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"])
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "NoSuchLifecycleConfiguration":
            return []
        if code == "NotImplemented":
            return None
        raise


def _ensure_rule(client: Any, bucket: str, prefix: str, days: int, rules: list[dict[str, Any]]) -> str:
    name = f"{RULE}:{prefix}"
    wanted = {
        "ID": name,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days},
    }
    said = f"unfinished uploads under {prefix or 'the whole bucket'} end after {days} d"
    if wanted in rules:
        return f"{said}: the rule is there"
    others = [rule for rule in rules if rule.get("ID") != name]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [*others, wanted]})
    return f"{said}: the rule was set"


def _dangers(rules: list[dict[str, Any]], prefix: str) -> Iterator[str]:
    """Rules that let objects under `prefix` expire: the history is in them, and Kafka has no other copy."""
    for rule in rules:
        if rule.get("Status") != "Enabled" or not {"Days", "Date"} & rule.get("Expiration", {}).keys():
            continue
        condition = rule.get("Filter", {})
        theirs = rule.get("Prefix", condition.get("Prefix", condition.get("And", {}).get("Prefix", "")))
        if theirs.startswith(prefix) or prefix.startswith(theirs):
            yield f"rule {rule.get('ID', '?')!r} deletes objects under {theirs!r} by age: it will delete history"
