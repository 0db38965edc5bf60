"""The section `schema_registry` of the settings."""

from __future__ import annotations

import base64
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from iceberg_catalog.connect.redaction import secret_values
from rsm_bridge.config.durations import Seconds
from rsm_bridge.config.section import FilePath, Section


class RegistryTlsSettings(Section):
    """TLS towards the schema registry. Files are PEM."""

    ca_file: FilePath | None = Field(
        default=None, description="CA certificates that the registry's must come from. Default: the public ones."
    )
    certificate_file: FilePath | None = Field(
        default=None, description="Our certificate chain, for registries that want one."
    )
    key_file: FilePath | None = Field(
        default=None, description="Its private key. Default: it is in `certificate_file` too."
    )
    key_password: SecretStr | None = Field(default=None, description="Password of an encrypted key.")

    @model_validator(mode="after")
    def _a_key_has_a_certificate(self) -> RegistryTlsSettings:
        if self.certificate_file is None and (self.key_file is not None or self.key_password is not None):
            raise ValueError("a key needs certificate_file beside it")
        return self


class SchemaRegistrySettings(Section):
    """A schema registry with Confluent's API. Without this section: none. Needs the extra `tierberg[typed]`.

    With it, a topic without a rule becomes typed by itself when its values carry the registry's wire format.
    """

    url: str = Field(
        description="`https://host:8081`, the root of Confluent's API (Apicurio: `…/apis/ccompat/v7`). Of several, "
        "separated by commas, the next is asked when one does not answer.",
    )
    username: str | None = Field(default=None, min_length=1, description="User of basic authentication.")
    password: SecretStr | None = Field(default=None, description="Their password.")
    bearer_token: SecretStr | None = Field(default=None, description="Token instead of user and password.")
    logical_cluster: str | None = Field(
        default=None, description="Id that Confluent Cloud wants beside a token, `lsrc-…`."
    )
    tls: RegistryTlsSettings | None = Field(default=None, description="TLS towards the registry.")
    request_timeout: Seconds = Field(
        default=2.0,
        gt=0,
        le=60,
        description="Time in which a schema must be there, with all it refers to; several `url`s share it. Later, "
        "copies store bytes only and the columns follow.",
    )
    latest_refresh: Seconds = Field(
        default=60.0, ge=0, description="How long the latest version of a subject is taken for the latest."
    )

    @field_validator("url")
    @classmethod
    def _urls_name_servers(cls, value: str) -> str:
        for url in value.split(","):
            # What is wrong is said without the text: a password may be in it.
            parts = urlsplit(url.strip())
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("use https://host:port/path, several separated by commas")
            if parts.username is not None or parts.query or parts.fragment:
                raise ValueError("no user, ? or # may be in it; username and password are keys of their own")
        return value

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> SchemaRegistrySettings:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        if self.username is not None and ":" in self.username:
            raise ValueError("basic authentication allows no colon in username")
        if self.bearer_token is not None and self.username is not None:
            raise ValueError("use either bearer_token or username and password")
        if self.logical_cluster is not None and self.bearer_token is None:
            raise ValueError("logical_cluster belongs to bearer_token")
        return self

    def urls(self) -> tuple[str, ...]:
        """The servers' addresses, in the order they are asked."""
        return tuple(url.strip().rstrip("/") for url in self.url.split(","))


def registry_secrets(settings: SchemaRegistrySettings) -> frozenset[str]:
    """Its credentials, as they may show up in a message."""
    password = None if settings.password is None else settings.password.get_secret_value()
    given = {
        "password": settings.password,
        "token": settings.bearer_token,
        "key_password": None if settings.tls is None else settings.tls.key_password,
    }
    named = {name: secret.get_secret_value() for name, secret in given.items() if secret is not None}
    if password is not None:
        named["authorization"] = base64.b64encode(f"{settings.username}:{password}".encode()).decode()
    return secret_values(named)
