"""The catalogs that some copies and their topics' tables lie in, as PyIceberg and as Spark open them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from iceberg_catalog.catalogs import CatalogSettings, open_catalog
from repartition.spark_catalog import spark_catalog
from rsm_bridge.copy_hold import DeclaredCopy
from rsm_bridge.maintain_command import Place
from rsm_bridge.publisher import catalog_properties
from rsm_bridge.secret_settings import revealed


@dataclass(frozen=True, slots=True)
class Target:
    """Where tables are: a catalog as PyIceberg and as Spark call it."""

    catalog: Catalog
    spark_name: str


def open_targets(place: Place, copies: Iterable[DeclaredCopy]) -> tuple[dict[str, Target], dict[str, str]]:
    """By name in the settings, that of the topics' tables too; and Spark's configuration of all, with credentials.

    Raises:
        RepartitionError: `bad_rule` for a kind of catalog that Spark has to be told of by hand.
        CatalogError: one cannot be opened.
    """
    own = catalog_properties(place.settings)
    targets = {place.settings.catalog.name: Target(place.catalog, own.name)}
    conf = spark_catalog(own.name, own.properties, own.timeouts)
    for copy in copies:
        if copy.rule.catalog is not None and copy.catalog not in targets:
            properties = revealed(copy.rule.catalog.properties)
            targets[copy.catalog] = Target(open_catalog(CatalogSettings(copy.catalog, properties)), copy.catalog)
            conf |= spark_catalog(copy.catalog, properties)
    return targets, conf
