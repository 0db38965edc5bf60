"""A catalog's properties as PyIceberg takes them → as Spark's Iceberg catalog takes them.

Iceberg, "Spark configuration". The result has credentials, and belongs into Spark's configuration and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL, make_url

from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.limits import REST_CONNECT_TIMEOUT_MS, REST_READ_TIMEOUT_MS
from repartition.errors import RepartitionError
from repartition.spark.java_properties import java_properties

#: What an address of PostgreSQL's may say, by the names of libpq, that its JDBC driver calls otherwise.
_JDBC_RENAMED: Final = {
    "application_name": "ApplicationName",
    "channel_binding": "channelBinding",
    "connect_timeout": "connectTimeout",
    "gssencmode": "gssEncMode",
    "sslnegotiation": "sslNegotiation",
}
_TIMEOUTS: Final = Timeouts(REST_CONNECT_TIMEOUT_MS, REST_READ_TIMEOUT_MS)


def spark_catalog(name: str, properties: Mapping[str, Any], timeouts: Timeouts = _TIMEOUTS) -> dict[str, str]:
    """`spark.sql.catalog.<name>` and all below it.

    Args:
        name: of the catalog, in Spark and, for a database, in its tables.
        properties: PyIceberg's.
        timeouts: of each request to a REST catalog or PostgreSQL: Java's clients wait for ever, and a job has one
            thread. What `properties` say by their names wins.

    Raises:
        RepartitionError: `bad_rule` for a catalog that has to be configured in `spark` by hand.
    """
    prefix = f"spark.sql.catalog.{name}"
    kind, uri = _kind(properties), properties.get("uri", "")
    conf = {"cache-enabled": "false"}
    if kind == "sql":
        url = make_url(uri)
        conf |= {"type": "jdbc", "uri": _jdbc(url), "jdbc.schema-version": "V1", **_given(url, timeouts)}
    elif kind in {"rest", "glue", "hive"}:
        conf |= {"type": kind} | ({"uri": uri} if uri else {})
        if kind == "rest":
            conf["rest.client.connection-timeout-ms"] = str(timeouts.connect_ms)
            conf["rest.client.socket-timeout-ms"] = str(timeouts.read_ms)
    else:
        raise RepartitionError(
            "bad_rule",
            f"catalog {name} is of type {kind!r}: set spark.sql.catalog.{name} and all below it in `repartition.spark`",
        )
    conf |= java_properties(name, properties)
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": conf[key] for key in conf}


def _kind(properties: Mapping[str, Any]) -> str:
    if "type" in properties:
        return str(properties["type"]).lower()
    scheme = str(properties.get("uri", "")).partition(":")[0]
    return {"http": "rest", "https": "rest", "thrift": "hive"}.get(scheme, "sql")


def _jdbc(url: URL) -> str:
    """SQLAlchemy's address as a JDBC driver takes it, without login and query."""
    if url.get_backend_name() == "sqlite":
        return f"jdbc:sqlite:{url.database}"
    port = f":{url.port}" if url.port else ""
    return f"jdbc:{url.get_backend_name()}://{url.host}{port}/{url.database}"


def _given(url: URL, timeouts: Timeouts) -> dict[str, str]:
    """What a JDBC driver is given beside the address: login, time-outs in whole seconds, and the address's query.

    SQLite's query is of Python's driver, and says nothing to Java's.
    """
    login = {"jdbc.user": url.username, "jdbc.password": url.password}
    found = {key: str(value) for key, value in login.items() if value is not None}
    if url.get_backend_name() == "sqlite":
        return found
    if url.get_backend_name() == "postgresql":
        connect_s, read_s = (math.ceil(seconds) for seconds in timeouts.seconds())
        found |= {"jdbc.connectTimeout": str(connect_s), "jdbc.socketTimeout": str(read_s)}
    for name, value in url.query.items():
        found[f"jdbc.{_JDBC_RENAMED.get(name, name)}"] = value if isinstance(value, str) else ",".join(value)
    return found
