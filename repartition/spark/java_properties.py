"""A catalog's properties by PyIceberg's names → by those of Iceberg's Java side. What both call the same passes.

Iceberg, "Catalog properties", "AWS", "Azure". What Java has no property for it finds in the environment of the cloud's
own clients, as documented with the catalogs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from repartition.errors import RepartitionError

#: Names that Java calls otherwise; None: said elsewhere, or nothing to Java.
_RENAMED: Final = {
    "s3.region": "client.region",
    "s3.force-virtual-addressing": None,
    "s3.connect-timeout": None,
    "s3.request-timeout": None,
    "adls.account-name": None,
    "adls.account-key": None,
    "adls.sas-token": None,
    "adls.connection-string": None,
    "adls.client-id": None,
    "adls.client-secret": None,
    "adls.tenant-id": None,
    "py-io-impl": None,
    "auth": None,
    "type": None,
    "uri": None,
}
#: By what a property or a warehouse begins with. Of a database's catalog Java takes Hadoop's file access otherwise.
_FILE_ACCESS: Final = {
    ("s3.", "s3:", "s3a:", "s3n:"): "org.apache.iceberg.aws.s3.S3FileIO",
    ("adls.", "abfs:", "abfss:", "wasb:", "wasbs:"): "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    ("gcs.", "gs:"): "org.apache.iceberg.gcp.gcs.GCSFileIO",
}
_ADLS_HOSTS: Final = ".dfs.core.windows.net"


def java_properties(name: str, properties: Mapping[str, Any]) -> dict[str, str]:
    """What Java is told, but for a catalog's type and address.

    Args:
        name: of the catalog, for errors.
        properties: PyIceberg's, with mappings.

    Raises:
        RepartitionError: `bad_rule` for a mapping that Java has no counterpart of.
    """
    found = {**_path_style(properties), **_azure(properties), **_login(name, properties.get("auth"))}
    for key, value in properties.items():
        renamed = _RENAMED.get(key, key)
        if renamed is None:
            continue
        if isinstance(value, Mapping):
            raise _no_counterpart(name, key)
        found[renamed] = str(value)
    said = (*properties, found.get("warehouse", ""))
    for begins, access in _FILE_ACCESS.items():
        if any(item.startswith(begins) for item in said):
            found.setdefault("io-impl", access)
    return found


def _path_style(properties: Mapping[str, Any]) -> dict[str, str]:
    """With an endpoint of its own PyIceberg puts the bucket into the path; Java would put it into the host's name."""
    virtual = str(properties.get("s3.force-virtual-addressing", "")).lower() in {"true", "1", "t", "y", "yes", "on"}
    return {"s3.path-style-access": "false" if virtual else "true"} if "s3.endpoint" in properties else {}


def _azure(properties: Mapping[str, Any]) -> dict[str, str]:
    """Keys and signatures are of an account, or of its host, in Java."""
    account, key = properties.get("adls.account-name"), properties.get("adls.account-key")
    found: dict[str, str] = {}
    if account and key:
        found |= {"adls.auth.shared-key.account.name": account, "adls.auth.shared-key.account.key": key}
    if account and (signature := properties.get("adls.sas-token")):
        host = f"{account}{properties.get('adls.dfs-storage-authority', _ADLS_HOSTS)}"
        found[f"adls.sas-token.{host}"] = signature
    return found


def _login(name: str, auth: Any) -> dict[str, str]:
    """A REST catalog's `auth`: `type`, and a mapping of that name."""
    if auth is None:
        return {}
    kind = auth.get("type") if isinstance(auth, Mapping) else None
    given = auth.get(kind, {}) if isinstance(auth, Mapping) else {}
    if kind == "oauth2":
        # Without a scope PyIceberg asks for none, Java for `catalog`; one without a value counts as none (RFC 6749,
        # 3.2). New tokens come by the same credentials: servers of others exchange none.
        return {
            "rest.auth.type": "oauth2",
            "credential": f"{given.get('client_id')}:{given.get('client_secret')}",
            "oauth2-server-uri": str(given.get("token_url")),
            "scope": str(given.get("scope") or ""),
            "token-exchange-enabled": "false",
        }
    if kind == "basic":
        login = {f"rest.auth.basic.{part}": str(given.get(part)) for part in ("username", "password")}
        return {"rest.auth.type": "basic", **login}
    if kind == "noop":
        return {"rest.auth.type": "none"}
    raise _no_counterpart(name, f"auth.type {kind}")


def _no_counterpart(name: str, what: str) -> RepartitionError:
    said = f"catalog {name} has `{what}`, which Spark knows nothing like: "
    return RepartitionError("bad_rule", f"{said}set spark.sql.catalog.{name} and all below it in `repartition.spark`")
