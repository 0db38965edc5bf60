"""The catalogs that some projections and their topics' tables lie in, as PyIceberg and as Spark open them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import CatalogSettings, merged_properties, open_catalog
from repartition.errors import RepartitionError
from repartition.spark.catalog import spark_catalog
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.secrets import revealed
from rsm_bridge.storage.backend import Backend, catalog_properties


@dataclass(frozen=True, slots=True)
class Target:
    """Where tables are: a catalog as PyIceberg and as Spark call it."""

    catalog: Catalog
    spark_name: str


def open_targets(backend: Backend, rules: Iterable[ProjectionRule]) -> tuple[dict[str, Target], dict[str, str]]:
    """By name in the settings, that of the topics' tables too; and Spark's configuration of all, with credentials.

    Args:
        backend: store and catalog of the topics.
        rules: of the projections.

    Raises:
        RepartitionError: `bad_rule` for a catalog that Spark has to be told of by hand, and is not.
        CatalogError: one cannot be opened.
    """
    own = catalog_properties(backend.settings)
    targets = {backend.settings.catalog.name: Target(backend.catalog, own.name)}
    given = backend.settings.repartition.spark
    conf = _of_spark(own, given)
    for rule in rules:
        if rule.catalog is not None and rule.catalog.name not in targets:
            other = CatalogSettings(rule.catalog.name, revealed(rule.catalog.properties))
            targets[other.name] = Target(open_catalog(other), other.name)
            conf |= _of_spark(other, given)
    return targets, conf


def _of_spark(settings: CatalogSettings, given: Container[str]) -> dict[str, str]:
    """Spark's configuration of a catalog; none where one that cannot be derived is `given` by hand."""
    try:
        return spark_catalog(settings.name, merged_properties(settings), settings.timeouts)
    except RepartitionError:
        if f"spark.sql.catalog.{settings.name}" in given:
            return {}
        raise
