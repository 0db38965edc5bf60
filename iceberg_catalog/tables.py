"""Create a topic's table once, and find it again.

1. The plain name is ours: use it.
2. Our fallback name exists: use it (so a plain name that became free later does not give a topic a second table).
3. The plain name is free: create it. Somebody else's: create the fallback name.

Losing a race to another bridge shows as "already exists": look again. A table with another owner stamp, or none, is
never written, altered or taken over. A topic that is created again has a new topic id, so it is another owner and gets
the fallback name; the old table stays as it is.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import index_by_name
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog import failpoints
from iceberg_catalog import schema as layout
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import CREATE_ATTEMPTS_MAX
from iceberg_catalog.names import Owner, PlainName, fallback_name, table_name

DEFAULT_NAMESPACE = "kafka"


def ensure_table(
    catalog: Catalog,
    owner: Owner,
    value_format: ValueFormat,
    *,
    data_path: str,
    namespace: str = DEFAULT_NAMESPACE,
    location: str | None = None,
    plain: PlainName = table_name,
) -> Table:
    """The owner's table, created if need be. Safe to call from many bridges at once.

    Args:
        catalog: where to look and create.
        owner: whose table; written into its properties.
        value_format: decides the columns.
        data_path: root of the table's data files, recorded as `write.data.path` when the table is created.
        namespace: created if absent; dots separate its levels.
        location: root of the table's metadata; None lets the catalog choose.
        plain: the name of the topic's table, unless it belongs to another.

    Raises:
        CatalogError: `owner_mismatch` if both names belong to others, `schema_mismatch` if the table's columns, field
            ids or partitioning are not the ones expected. What the catalog raises passes through.
    """
    levels = tuple(namespace.split("."))
    for _ in range(CREATE_ATTEMPTS_MAX):
        if (table := find_table(catalog, owner, namespace=namespace, plain=plain)) is not None:
            check_layout(table, value_format)
            return table
        wanted = (*levels, plain(owner.topic))
        taken = _load(catalog, wanted)
        if taken is not None and is_owner(taken, owner):
            continue  # another bridge has created it since
        identifier = wanted if taken is None else (*levels, fallback_name(owner, plain))
        _ensure_namespace(catalog, levels)
        failpoints.hit("before-table", ".".join(identifier))
        try:
            table = catalog.create_table(
                identifier,
                layout.table_schema(value_format),
                location=location,
                partition_spec=layout.partition_spec(value_format),
                sort_order=layout.sort_order(value_format),
                properties=layout.table_properties(owner, value_format, data_path),
            )
        except TableAlreadyExistsError:
            continue
        failpoints.hit("after-table", ".".join(identifier))
        check_layout(table, value_format)
        return table
    raise CatalogError("owner_mismatch", f"no table name is free for topic {owner.topic} in namespace {namespace}")


def find_table(
    catalog: Catalog, owner: Owner, *, namespace: str = DEFAULT_NAMESPACE, plain: PlainName = table_name
) -> Table | None:
    """The owner's table if it exists. Creates nothing.

    Under the topic's own name too where `plain` gives another: the rule may have come after the table.
    """
    levels = tuple(namespace.split("."))
    own = (table_name(owner.topic), fallback_name(owner))
    for name in dict.fromkeys((plain(owner.topic), fallback_name(owner, plain), *own)):
        table = _load(catalog, (*levels, name))
        if table is not None and is_owner(table, owner):
            return table
    return None


def stamped_owner(table: Table) -> Owner | None:
    """The owner whose stamp the table carries; None for a table that is not ours."""
    values = [table.properties.get(key) for key in (layout.CLUSTER, layout.TOPIC, layout.TOPIC_ID)]
    try:
        cluster, topic, topic_id = values[0], values[1], bytes.fromhex(values[2] or "")
    except ValueError:
        return None
    return None if cluster is None or topic is None or len(topic_id) != 16 else Owner(cluster, topic, topic_id)


def owned_tables(catalog: Catalog, *, namespace: str = DEFAULT_NAMESPACE) -> list[tuple[Table, Owner]]:
    """All tables of the namespace that carry an owner stamp. One request each."""
    levels = tuple(namespace.split("."))
    if not catalog.namespace_exists(levels):
        return []
    loaded = (_load(catalog, tuple(identifier)) for identifier in sorted(catalog.list_tables(levels)))
    stamped = ((table, stamped_owner(table)) for table in loaded if table is not None)
    return [(table, owner) for table, owner in stamped if owner is not None]


def is_owner(table: Table, owner: Owner) -> bool:
    """Whether the table carries exactly this owner's stamp."""
    return all(table.properties.get(key) == value for key, value in layout.owner_properties(owner).items())


def _load(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


def _ensure_namespace(catalog: Catalog, levels: tuple[str, ...]) -> None:
    """Creates every level that is missing; somebody else doing the same is fine."""
    for depth in range(1, len(levels) + 1):
        if catalog.namespace_exists(levels[:depth]):
            continue
        try:
            catalog.create_namespace(levels[:depth])
        except Exception:  # a lost race is NamespaceAlreadyExistsError here, a database's own error there
            if not catalog.namespace_exists(levels[:depth]):
                raise


def check_layout(table: Table, value_format: ValueFormat) -> None:
    """Raises CatalogError `schema_mismatch` unless columns, field ids and partitioning are the ones expected."""
    name = ".".join(table.name())
    stamped = table.properties.get(layout.VALUE_FORMAT)
    if stamped != value_format:
        raise CatalogError("schema_mismatch", f"table {name} was created for values {stamped!r}, not {value_format!r}")
    expected = layout.expected_field_ids(value_format)
    found = index_by_name(table.schema())
    if any(found.get(column) != field_id for column, field_id in expected.items()):
        raise CatalogError("schema_mismatch", f"table {name} has field ids {dict(found)}, expected {dict(expected)}")
    spec = layout.partition_spec(value_format)
    if not table.spec().compatible_with(spec):
        raise CatalogError("schema_mismatch", f"table {name} is partitioned by {table.spec()}, expected {spec}")
