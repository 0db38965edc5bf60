"""A catalog's properties as PyIceberg takes them → as Spark's Iceberg catalog takes them.

Iceberg, "Spark configuration" and "Catalog properties". What both call the same passes through; credentials too, so the
result belongs into Spark's configuration and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from repartition.errors import RepartitionError

#: PyIceberg's names that Iceberg's Java side calls otherwise.
_RENAMED: Final = {
    "s3.region": "client.region",
    "s3.session-token": "s3.session-token",
    "s3.force-virtual-addressing": None,
    "s3.connect-timeout": None,
    "s3.request-timeout": None,
    "py-io-impl": None,
    "type": None,
    "uri": None,
    "warehouse": None,
}


def spark_catalog(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """`spark.sql.catalog.<name>` and all below it.

    Args:
        name: of the catalog, in Spark and, for a database, in its tables.
        properties: PyIceberg's.

    Raises:
        RepartitionError: `bad_rule` for a kind of catalog that has to be configured in `spark` by hand.
    """
    prefix = f"spark.sql.catalog.{name}"
    kind, uri = _kind(properties), properties.get("uri", "")
    conf = {"cache-enabled": "false"}
    if kind == "sql":
        conf |= {"type": "jdbc", "uri": _jdbc(uri), "jdbc.schema-version": "V1", **_database_login(uri)}
    elif kind in {"rest", "glue", "hive"}:
        conf |= {"type": kind} | ({"uri": uri} if uri else {})
    else:
        raise RepartitionError(
            "bad_rule", f"catalog {name} is of type {kind!r}: set spark.sql.catalog.{name}.* in `repartition.spark`"
        )
    if "warehouse" in properties:
        conf["warehouse"] = properties["warehouse"]
    for key, value in properties.items():
        renamed = _RENAMED.get(key, key)
        if renamed is not None:
            conf[renamed] = value
    if any(key.startswith("s3.") for key in conf) or conf.get("warehouse", "").startswith("s3"):
        conf.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": conf[key] for key in conf}


def _kind(properties: Mapping[str, str]) -> str:
    if "type" in properties:
        return properties["type"].lower()
    scheme = properties.get("uri", "").partition(":")[0]
    return {"http": "rest", "https": "rest", "thrift": "hive"}.get(scheme, "sql")


def _jdbc(uri: str) -> str:
    """SQLAlchemy's address as a JDBC driver takes it, without a login."""
    from sqlalchemy import make_url

    url = make_url(uri)
    if url.get_backend_name() == "sqlite":
        return f"jdbc:sqlite:{url.database}"
    port = f":{url.port}" if url.port else ""
    return f"jdbc:{url.get_backend_name()}://{url.host}{port}/{url.database}"


def _database_login(uri: str) -> dict[str, str]:
    from sqlalchemy import make_url

    url = make_url(uri)
    given = {"jdbc.user": url.username, "jdbc.password": url.password}
    return {key: str(value) for key, value in given.items() if value is not None}
