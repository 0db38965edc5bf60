"""Create a topic's table once, and find it again.

1. The plain name is ours: use it.
2. Our fallback name exists: use it (so a plain name that became free later does not give a topic a second table).
3. The plain name is free: create it. Somebody else's: create the fallback name.

Losing a race to another bridge shows as "already exists": look again. A table with another owner stamp, or none, is
never written, altered or taken over. A topic that is created again has a new topic id, so it is another owner and gets
the fallback name; the old table stays as it is.

A catalog that was restored from a backup may have an entry whose metadata.json is gone. Some say then that there is no
such table, which is not the same: nothing can be made under that name. So a table is absent only where the catalog does
not list it either.
"""

from __future__ import annotations

from typing import cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import index_by_name
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog import failpoints
from iceberg_catalog.errors import DAMAGE, CatalogError, damage_of
from iceberg_catalog.limits import CREATE_ATTEMPTS_MAX
from iceberg_catalog.tables import schema as layout
from iceberg_catalog.tables.names import Owner, PlainName, fallback_name, table_name

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
        value_format: decides the columns of a new table; one that is there keeps its own.
        data_path: root of the table's data files, recorded as `write.data.path` when the table is created.
        namespace: created if absent; dots separate its levels.
        location: root of the table's metadata; None lets the catalog choose.
        plain: the name of the topic's table, unless it belongs to another.

    Raises:
        CatalogError: `owner_mismatch` if both names belong to others, `schema_mismatch` if the table's columns, field
            ids or partitioning are not the ones expected, and as find_table. What the catalog raises passes through.
    """
    levels = tuple(namespace.split("."))
    for _ in range(CREATE_ATTEMPTS_MAX):
        if (table := find_table(catalog, owner, namespace=namespace, plain=plain)) is not None:
            check_layout(table)
            return table
        wanted = (*levels, plain(owner.topic))
        taken = load_existing(catalog, wanted)
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
        check_layout(table)
        return table
    raise CatalogError("owner_mismatch", f"no table name is free for topic {owner.topic} in namespace {namespace}")


def find_table(
    catalog: Catalog, owner: Owner, *, namespace: str = DEFAULT_NAMESPACE, plain: PlainName = table_name
) -> Table | None:
    """The owner's table if it exists. Creates nothing.

    Under the topic's own name too where `plain` gives another: the rule may have come after the table.

    Raises:
        CatalogError: `table_unreadable` when it is not found, and one of its names has an entry without metadata.
            `unavailable`: the catalog fails to load it. What else it raises passes through.
    """
    levels = tuple(namespace.split("."))
    absent: list[str] = []
    lost: CatalogError | None = None
    for name in names_of(owner, plain):
        try:
            table = _load(catalog, (*levels, name))
        except CatalogError as error:
            lost = lost or error  # perhaps another's: ours may have the next name
            continue
        if table is None:
            absent.append(name)
        elif is_owner(table, owner):
            return table
    listed = _listed(catalog, levels) if absent else frozenset()
    for name in absent:
        table = load_existing(catalog, (*levels, name)) if (*levels, name) in listed else None
        if table is not None and is_owner(table, owner):
            return table
    if lost is not None:
        raise lost
    return None


def names_of(owner: Owner, plain: PlainName = table_name) -> list[str]:
    """The names the owner's table may have, without the namespace; the first is the one it gets."""
    own = (table_name(owner.topic), fallback_name(owner))
    return list(dict.fromkeys((plain(owner.topic), fallback_name(owner, plain), *own)))


def stamped_owner(table: Table) -> Owner | None:
    """The owner whose stamp the table carries; None for a table that is not ours."""
    values = [table.properties.get(key) for key in (layout.CLUSTER, layout.TOPIC, layout.TOPIC_ID)]
    try:
        cluster, topic, topic_id = values[0], values[1], bytes.fromhex(values[2] or "")
    except ValueError:
        return None
    return None if cluster is None or topic is None or len(topic_id) != 16 else Owner(cluster, topic, topic_id)


def owned_tables(catalog: Catalog, *, namespace: str = DEFAULT_NAMESPACE) -> list[tuple[Table, Owner]]:
    """All tables of the namespace that can be read and carry an owner stamp. One request each."""
    levels = tuple(namespace.split("."))
    if not catalog.namespace_exists(levels):
        return []
    loaded = (_load_readable(catalog, tuple(identifier)) for identifier in sorted(catalog.list_tables(levels)))
    stamped = ((table, stamped_owner(table)) for table in loaded if table is not None)
    return [(table, owner) for table, owner in stamped if owner is not None]


def rows_in(table: Table) -> int:
    """How many rows the table's head says it has."""
    head = table.current_snapshot()
    summary = {} if head is None or head.summary is None else head.summary.additional_properties
    return int(summary.get("total-records", 0))


def is_owner(table: Table, owner: Owner) -> bool:
    """Whether the table carries exactly this owner's stamp."""
    return all(table.properties.get(key) == value for key, value in layout.owner_properties(owner).items())


def load_existing(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    """The table under this very name, anybody's; None where the catalog has no entry.

    Raises:
        CatalogError: `table_unreadable`, `unavailable` as for find_table.
    """
    table = _load(catalog, identifier)
    if table is not None or identifier not in _listed(catalog, identifier[:-1]):
        return table
    table = _load(catalog, identifier)  # it may have been made just now
    if table is None:
        raise _unreadable(identifier, "the catalog lists it, and says of it alone that there is no such table")
    return table


def _load(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None
    except FileNotFoundError as error:
        raise _unreadable(identifier, str(error)) from error
    except DAMAGE as error:
        if isinstance(catalog, RestCatalog):  # its answer, which a proxy may have written
            raise
        raise _unreadable(identifier, f"its metadata is damaged: {damage_of(error)}") from error
    except ServerError as error:
        name = ".".join(identifier)
        raise CatalogError("unavailable", f"the catalog fails to load table {name}: {error}") from error


def _load_readable(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    try:
        return _load(catalog, identifier)
    except CatalogError as error:
        if error.kind == "table_unreadable":
            return None
        raise


def _listed(catalog: Catalog, levels: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """What the catalog lists in a namespace; nothing where it does not let us."""
    try:
        return frozenset(tuple(item) for item in catalog.list_tables(levels))
    except (NoSuchNamespaceError, ForbiddenError):
        return frozenset()


def _unreadable(identifier: tuple[str, ...], said: str) -> CatalogError:
    name = ".".join(identifier)
    return CatalogError(
        "table_unreadable",
        f"the catalog has an entry for table {name}, and its metadata cannot be read: {said}. Is its storage there? A "
        f"catalog restored from an old backup may name what was deleted since; `tierberg table drop {name} "
        "--unreadable` drops the entry, and the bridge makes the table anew from the store",
        name,
    )


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


def stamped_format(table: Table) -> ValueFormat:
    """What values the table was made for, whatever its topic's rule says by now.

    Raises:
        CatalogError: `schema_mismatch`: it does not say so.
    """
    stamped = table.properties.get(layout.VALUE_FORMAT)
    if stamped in ("raw", "string"):
        return cast(ValueFormat, stamped)
    name = ".".join(table.name())
    raise CatalogError("schema_mismatch", f"table {name}: property {layout.VALUE_FORMAT} is {stamped!r}", name)


def data_root(table: Table) -> str:
    """Where our data files of the table are, whatever an engine says of its own.

    Raises:
        CatalogError: `schema_mismatch`: it does not say so.
    """
    if (path := table.properties.get(layout.DATA_PATH)) is not None:
        return path
    name = ".".join(table.name())
    raise CatalogError("schema_mismatch", f"table {name}: property {layout.DATA_PATH} is gone", name)


def kafka_field_id(table: Table, column: str) -> int:
    """The field id that one of Kafka's columns was made with, whatever an engine has called the column since.

    Data files and manifests name columns by these ids for good.

    Raises:
        CatalogError: `schema_mismatch`: the table does not say what values it was made for.
    """
    return layout.expected_field_ids(stamped_format(table))[column]


def check_layout(table: Table) -> None:
    """Whether what is written here fits the table.

    Raises:
        CatalogError: `schema_mismatch` unless columns, field ids and partitioning are those its values need, and the
            format version is the one it was made with.
    """
    name, value_format = ".".join(table.name()), stamped_format(table)
    if table.format_version != layout.FORMAT_VERSION:
        said = f"table {name}: somebody has made it format version {table.format_version}, and no bridge writes that"
        raise CatalogError("schema_mismatch", said, name)
    expected = layout.expected_field_ids(value_format)
    found = index_by_name(table.schema())
    names = {field_id: column for column, field_id in found.items()}
    wrong = [
        f"{column} ({field_id}, which {f'is called {names[field_id]}' if field_id in names else 'is gone'})"
        for column, field_id in expected.items()
        if found.get(column) != field_id
    ]
    if wrong:
        said = f"table {name}: it has field ids other than Kafka's columns were made with: {', '.join(wrong)}"
        raise CatalogError("schema_mismatch", said, name)
    spec = layout.partition_spec(value_format)
    if not table.spec().compatible_with(spec):
        by, wanted = (", ".join(map(str, item.fields)) or "nothing" for item in (table.spec(), spec))
        raise CatalogError("schema_mismatch", f"table {name}: partitioned by {by}, expected {wanted}", name)
