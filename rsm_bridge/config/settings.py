"""What `tierberg.yaml` may say. `docs/configuration.md` is generated from the descriptions below.

Unknown keys are refused, every default is written here, and secrets never appear in errors or logs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from converter.types import ConvertOptions, ValueFormat
from rsm_bridge.config.client_rules import ClientRule
from rsm_bridge.config.durations import Seconds
from rsm_bridge.config.refusals import explain
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.config.section import CatalogProperties, FilePath, Section, texts
from rsm_bridge.config.settings_file import read_settings_file
from rsm_bridge.config.topics import TopicRule, matching, stored_format
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import (
    COPY_MEMORY_BYTES,
    LARGE_FILES_BYTES,
    LARGE_VALUE_BYTES,
    MIB,
    PROJECTIONS_AT_ONCE_MAX,
    REWRITE_BYTES,
)

_UNIX = "unix:"
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_STORE_URLS = (
    "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, "
    "abfss://container@account.dfs.core.windows.net/prefix, file:///folder or memory://"
)
_STORE_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "abfss", "file", "memory"})

#: Where a new table gets its location, see `IcebergCatalogSettings.layout`.
TableLayout = Literal["outside", "inside"]


class TlsSettings(Section):
    """TLS of the gRPC port. Files are PEM and are read again when they change."""

    certificate_file: FilePath = Field(description="The server's certificate chain.")
    key_file: FilePath = Field(description="Its private key, unencrypted.")
    client_ca_file: FilePath | None = Field(
        default=None,
        description="CA certificates that client certificates must come from. Set: mutual TLS, clients without a "
        "valid certificate are refused, and certificates whose extended key usage lacks `clientAuth`.",
    )
    clients: tuple[ClientRule, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which certificates may do what. Default: all that come from `client_ca_file` may copy, read and "
        "delete every topic; `tierberg serve` and `tierberg config check` warn of that.",
    )

    @model_validator(mode="after")
    def _clients_have_certificates(self) -> TlsSettings:
        if self.clients is not None and self.client_ca_file is None:
            raise ValueError("clients go by their certificates, and nothing asks for one: set client_ca_file")
        return self

    @property
    def everybody_may_write(self) -> bool:
        """Whether certificates are asked for, and each of them may do everything."""
        return self.client_ca_file is not None and self.clients is None


class StoreSettings(Section):
    """The object store. Without this section: the folder `store` under `data_dir`."""

    url: str = Field(
        description="Root of everything stored: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, "
        "`abfss://container@account.dfs.core.windows.net/prefix`, `file:///folder`; `memory://` for tests.",
    )
    options: dict[str, SecretStr] = Field(
        default={},
        description="Options of the store's client by obstore's names. S3: `region`, `endpoint`, `access_key_id`, "
        "`secret_access_key`, `session_token`, `virtual_hosted_style_request`; GCS: `service_account`, `base_url`; "
        "Azure: `account_name`, `account_key`, `sas_key`, `client_id`, `endpoint`; all: `allow_http`, `proxy_url`, "
        "`root_certificate`. Without keys the environment's credentials are used.",
    )
    fetch_timeout: Seconds = Field(
        default=0.4,
        gt=0,
        description="Time one ranged read may take, with two retries behind it. When the store is slower than that, "
        "the read is asked once more and has 5 s; its result waits for the broker's next try.",
    )
    upload_timeout: Seconds = Field(
        default=60.0,
        gt=0,
        description="Time one part of an upload, one listing or one delete may take, with retries for as long again "
        "and the same once more.",
    )

    _plain_texts = field_validator("options", mode="before")(texts)

    @field_validator("url")
    @classmethod
    def _url_names_a_place(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in _STORE_SCHEMES or "://" not in value:
            raise ValueError(f"use {_STORE_URLS}")
        if parts.query or parts.fragment or parts.password:
            raise ValueError("no ?, # or password may be in it; what the client needs goes into store.options")
        if parts.scheme == "file":
            if parts.netloc or not parts.path.strip("/"):
                raise ValueError("a folder is file:///folder, with three slashes")
        elif parts.scheme == "abfss":
            if "@" not in parts.netloc or "." not in parts.netloc:
                raise ValueError("an Azure file system is abfss://container@account.dfs.core.windows.net/prefix")
        elif parts.scheme != "memory" and not parts.netloc:
            raise ValueError(f"names no bucket; use {_STORE_URLS}")
        return value


class IcebergCatalogSettings(Section):
    """The Iceberg catalog. Without this section: SQLite in `data_dir`, tables in `data_dir/warehouse`."""

    name: str = Field(default="tierberg", min_length=1, description="The catalog's name.")
    properties: CatalogProperties = Field(
        default={},
        description="PyIceberg's catalog properties, for example `type: rest` and `uri: https://…`; `auth` and `ssl` "
        "are mappings, as there. Its environment variables (`PYICEBERG_CATALOG__<NAME>__…`) add to them. Empty: the "
        "embedded SQLite catalog.",
    )
    namespace: str = Field(
        default="kafka",
        description="Namespace of the tables: letters, digits, `_` and `-`, dots between levels.",
    )
    warehouse: str | None = Field(
        default=None,
        description="Location of new tables' metadata, where `properties` name no `warehouse`. Default: "
        "the catalog's own choice.",
    )
    layout: TableLayout = Field(
        default="outside",
        description="Of new tables. `outside`: data files lie outside the table's location, where an engine's orphan "
        "removal does not look. `inside`: the location is a folder of the store that holds the data files too, for "
        "catalogs that allow nothing else; then keep every orphan removal but ours away from it.",
    )
    connect_timeout: Seconds = Field(
        default=2.0,
        gt=0,
        description="Time until a connection to a REST catalog, its token server, or S3 with table metadata stands; to "
        "PostgreSQL with psycopg.",
    )
    read_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="Time one of those, or a database, may be without a byte of an answer; what it was asked for may "
        "still happen.",
    )

    _plain_texts = field_validator("properties", mode="before")(texts)

    @field_validator("namespace")
    @classmethod
    def _is_one_everywhere(cls, value: str) -> str:
        if _NAMESPACE.fullmatch(value) is None:
            raise ValueError("use letters, digits, _ and -, dots between levels")
        return value

    @model_validator(mode="after")
    def _names_are_of_a_catalog(self) -> IcebergCatalogSettings:
        """The embedded catalog has a name and a warehouse of its own: others would be believed and not looked at."""
        given = [name for name in ("name", "warehouse") if name in self.model_fields_set]
        if given and not self.properties:
            raise ValueError(
                f"{' and '.join(given)}: the embedded catalog has its own; another needs catalog.properties"
            )
        return self


class LimitSettings(Section):
    """What the process may use."""

    copy_memory_mib: Annotated[int, Field(ge=COPY_MEMORY_BYTES // MIB)] = Field(
        default=512,
        description="Memory budget of copies in MiB. A running copy is charged 128; one that does not fit waits, "
        "half an hour at most. What takes more than that, copies have in turns: `decompressed_batch_mib`.",
    )
    copy_workers: Annotated[int, Field(ge=1, le=64)] = Field(default=4, description="Copies converted at once.")
    copies_max: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=256,
        description="Copies running and waiting; one more is refused as `overloaded`. One connection may have as many "
        "as are left for others, so at most half of them, and one host three quarters.",
    )
    fetch_workers: Annotated[int, Field(ge=1, le=256)] = Field(
        default=16, description="Fetches reading or decoding at once."
    )
    fetches_max: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=2048, description="Open fetches; one more is refused as `overloaded`. Shared like `copies_max`."
    )
    control_workers: Annotated[int, Field(ge=1, le=64)] = Field(default=8, description="Deletes done at once.")
    chunk_cache_mib: Annotated[int, Field(ge=8)] = Field(
        default=256, description="Cache of decoded chunks, ready to be served, in MiB."
    )
    index_cache_mib: Annotated[int, Field(ge=1)] = Field(
        default=64, description="Cache of index directories and blocks, in MiB."
    )
    decompressed_batch_mib: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=256,
        description="A batch that decompresses to more is kept as it is and its rows are withheld. "
        "So is one whose records and headers, at 64 bytes each, take more than that, and than 32 MiB, with their "
        "contents. What a copy needs beyond its part of `copy_memory_mib` one copy has at a time: four times as much "
        "as this for a large batch, 256 MiB for a large value, and 256 MiB for up to 128 MiB of files beside the log, "
        "a producer snapshot of millions of producers, while they become its index.",
    )

    @property
    def large_work_mib(self) -> int:
        """MiB that the one copy whose turn it is may use beyond its place: for a batch, a value and its files."""
        return 4 * self.decompressed_batch_mib + (LARGE_VALUE_BYTES + LARGE_FILES_BYTES) // MIB

    @property
    def rewriting_mib(self) -> int:
        """MiB that the one data file whose turn it is takes while it is written anew, beside all copies."""
        return REWRITE_BYTES // MIB


class MergeSettings(Section):
    """Small data files of a table become larger ones when it is maintained. The defaults leave busy topics alone."""

    small_mib: Annotated[int, Field(ge=0, le=1024)] = Field(
        default=16, description="A data file below it is small. `0`: nothing is merged."
    )
    target_mib: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=128, description="A merged file has at most so many MiB."
    )
    files_min: Annotated[int, Field(ge=3, le=10_000)] = Field(
        default=16, description="Fewer small files beside each other are left alone."
    )
    files_max: Annotated[int, Field(ge=3, le=10_000)] = Field(
        default=1000,
        description="Files that one merge joins at most; each costs its segment's index a new version.",
    )
    age: Seconds = Field(default=3600.0, ge=0, description="A younger file is left alone.")
    span: Seconds = Field(
        default=86400.0,
        ge=0,
        description="Record time that one merged file may hold: its rows leave by retention when the newest of them "
        "does. Not looked at where `table_retention` is `keep`.",
    )

    @model_validator(mode="after")
    def _target_holds_small_files(self) -> MergeSettings:
        if self.target_mib < self.small_mib:
            raise ValueError(f"target_mib ({self.target_mib}) must be at least small_mib ({self.small_mib})")
        if self.files_max < self.files_min:
            raise ValueError(f"files_max ({self.files_max}) must be at least files_min ({self.files_min})")
        return self


class KafkaSettings(Section):
    """The brokers, for `tierberg status` and `tierberg config check`: the bridge itself never calls them."""

    bootstrap_servers: str | None = Field(
        default=None,
        min_length=1,
        description="`host:port,…` of some brokers. `tierberg status` then compares with what was produced, and "
        "`tierberg config check` asks for the topics; needs the extra `tierberg[kafka]`. Default: Kafka is not asked.",
    )
    properties: dict[str, SecretStr] = Field(
        default={},
        description="More properties of the client by librdkafka's names, for example `security.protocol`, "
        "`sasl.username`, `ssl.ca.location`.",
    )


class RepartitionSettings(Section):
    """The Spark jobs of `tierberg repartition`, which keep the `copies` of topics."""

    spark: dict[str, SecretStr] = Field(
        default={},
        description="Spark's configuration (`spark.…`). `spark.jars` or `spark.jars.packages` must bring "
        "`iceberg-spark-runtime-4.1_2.13`, `iceberg-aws-bundle` for S3, and the JDBC driver of a database. Under "
        "`spark-submit`, jars and the driver's memory are its own options: for them this comes too late.",
    )
    max_mib: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="How much of a topic's data files one run reads, in MiB; at least one file. Default: all there is.",
    )
    interval: Seconds = Field(
        default=60.0,
        gt=0,
        description="With `--continuous`: time from the start of one round to that of the next. Topics with hundreds "
        "of partitions want minutes, for the size of their projections' metadata (docs/projections.md, Limits).",
    )
    side_by_side: Annotated[int, Field(ge=1, le=PROJECTIONS_AT_ONCE_MAX)] = Field(
        default=2,
        description="How many projections a job runs at once: one that reads a long history, or is compacted, keeps "
        "one place, and the others go on in the rest. Each takes memory of Spark's driver and executors. One where a "
        "catalog is neither REST nor a database.",
    )
    metrics: str | None = Field(
        default=None,
        description="`host:port` of a job's page `/metrics` (Prometheus) while it runs, loopback only. Where the port "
        "is taken, by another job for example, it says so and runs without. Default: none.",
    )


class Settings(Section):
    """The whole file."""

    data_dir: FilePath = Field(
        default=Path("tierberg-data"),
        description="Folder of the embedded store and catalog, and of the numba cache. In paths `~` is the home "
        "folder; variables are not read.",
    )
    listen: str = Field(
        default="127.0.0.1:7410",
        description="`host:port` or `unix:path` of the gRPC server. Port 0 takes a free one. Beyond loopback it needs "
        "`tls.client_ca_file`, or `insecure`.",
    )
    metrics_listen: str | None = Field(
        default=None,
        description="`host:port` of the pages `/metrics` (Prometheus), `/healthz` and `/readyz`, loopback only. "
        "Default: none.",
    )
    insecure: bool = Field(default=False, description="Allow `listen` beyond loopback without client authentication.")
    tls: TlsSettings | None = Field(default=None, description="TLS of the gRPC port.")
    store: StoreSettings | None = Field(default=None, description="The object store.")
    catalog: IcebergCatalogSettings = Field(default=IcebergCatalogSettings(), description="The Iceberg catalog.")
    kafka: KafkaSettings = Field(default=KafkaSettings(), description="The brokers, for commands.")
    merge: MergeSettings = Field(default=MergeSettings(), description="Merging of small data files.")
    limits: LimitSettings = Field(default=LimitSettings(), description="What the process may use.")
    repartition: RepartitionSettings = Field(
        default=RepartitionSettings(), description="The Spark jobs that keep projections of topics."
    )
    reclaim_grace: Seconds = Field(
        default=600.0,
        description="How long the objects of a deleted segment stay in the store after the delete and after its rows "
        "have left the table's current snapshot; queries that run on an older snapshot may still read them. Then the "
        "snapshots that name them expire and they go. `0s`: at once, mass deletes too.",
    )
    mass_delete_grace: Seconds = Field(
        default=86400.0,
        description="The same for deletes of over half a table's rows within ten minutes: until then "
        "`tierberg undelete` brings them back. Of it and `reclaim_grace` the longer counts; `0s`: no difference is "
        "made.",
    )
    maintain_interval: Seconds = Field(
        default=3600.0,
        description="How often each table is maintained in the background: leftovers of crashed copies and publishers "
        "are removed. `0s`: never; `tierberg maintain` does the same by hand.",
    )
    publish_interval: Seconds = Field(
        default=1.0,
        description="At most one Iceberg commit per table in this time, with every segment of all its partitions that "
        "is ready by then. A table that was idle for so long is committed to at once.",
    )
    freshness_target: Seconds | None = Field(
        default=None,
        description="How old a record may become before it is in the table. `tierberg status` exits non-zero for "
        "partitions that are further behind, whatever the cause, an open segment too. Default: no promise; open "
        "segments may stay open.",
    )
    schema_registry: SchemaRegistrySettings | None = Field(default=None, description="The schema registry.")
    generation: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Number of the rules below; raise it when you change them. It is stamped on the tables: a bridge "
        "with an older one neither adds columns nor changes their types, so bridges may be restarted one by one.",
    )
    topics: tuple[TopicRule, ...] = Field(
        default=(),
        description="Ordered rules. A topic that matches none is `auto` if there is a `schema_registry`, else `raw`.",
    )

    @model_validator(mode="after")
    def _listen_is_safe(self) -> Settings:
        parse_listen(self.listen)
        for name, page in (("metrics_listen", self.metrics_listen), ("repartition.metrics", self.repartition.metrics)):
            if page is not None:
                parse_listen(page, name)
        authenticated = self.tls is not None and self.tls.client_ca_file is not None
        if not is_local(self.listen) and not authenticated and not self.insecure:
            raise ValueError(
                f"listen: {self.listen} can be reached from other machines and nothing authenticates clients; "
                "set tls.client_ca_file, listen on loopback or a unix socket, or accept the risk with insecure: true"
            )
        for name, listen in (
            ("metrics_listen", self.metrics_listen),
            ("repartition.metrics", self.repartition.metrics),
        ):
            if listen is not None and (listen.startswith(_UNIX) or not is_local(listen)):
                raise ValueError(f"{name}: {listen} is not host:port on loopback")
        return self

    @model_validator(mode="after")
    def _schemas_can_be_had(self) -> Settings:
        for number, rule in enumerate(self.topics):
            parts = () if self.schema_registry is not None else rule.needs_registry()
            for part in parts:
                raise ValueError(
                    f"topics.{number}: {part}_format {rule.format_of(part)} takes its schemas from the registry, and "
                    f"there is no schema_registry; set it, or {part}_schema: {{from: inline, …}}"
                )
        return self

    def values_of(self, topic: str) -> ValueFormat:
        """What a new table of the topic is made for."""
        return stored_format(self.rule(topic).value_format)

    def table_of(self, topic: str) -> str:
        """The name of a topic's table, unless it belongs to another topic."""
        return self.rule(topic).table_of(topic)

    @property
    def may_type(self) -> bool:
        """Whether any topic's values or keys may become columns."""
        return self.schema_registry is not None or any(
            rule.source_of("value") is not None or rule.key_format != "raw" for rule in self.topics
        )

    def rule(self, topic: str) -> TopicRule:
        """The first rule whose pattern matches the whole name, or the default one."""
        place = matching(self.topics, topic)
        if place is not None:
            return self.topics[place]
        return TopicRule(pattern=".*", value_format="raw" if self.schema_registry is None else "auto")


def parse_listen(listen: str, key: str = "listen") -> tuple[str, int] | Path:
    """(host, port), or the path of a unix socket.

    Raises:
        ValueError: neither `host:port` nor `unix:path`; begins with the `key` it is the value of.
    """
    if listen.startswith(_UNIX):
        path = listen[len(_UNIX) :]
        if not path:
            raise ValueError(f"{key}: unix: needs a path")
        return Path(path)
    host, colon, port = listen.rpartition(":")
    # Other scripts have digits too, and int() takes some of them.
    if not colon or not host or re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535:
        raise ValueError(f"{key}: {listen!r} is neither host:port nor unix:path")
    return host.strip("[]"), int(port)


def is_local(listen: str) -> bool:
    """Whether only this machine can reach the address: a unix socket or loopback."""
    target = parse_listen(listen)
    return isinstance(target, Path) or target[0] in _LOOPBACK


def load_settings(path: Path | None, overrides: dict[str, Any] | None = None) -> Settings:
    """Reads the file, if any, and lays command-line values over it.

    Raises:
        SettingsError: with one line per wrong key: where, what is wrong, what is allowed.
    """
    values = {} if path is None else read_settings_file(path)
    values.update({key: value for key, value in (overrides or {}).items() if value is not None})
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(explain(error, Settings, "command line" if path is None else str(path))) from error


def convert_options(settings: Settings, topic: str) -> ConvertOptions:
    """The conversion options of a topic, by its first matching rule."""
    rule = settings.rule(topic)
    # Columns of typed formats are added to bytes by the room that decodes them.
    return ConvertOptions(stored_format(rule.value_format), rule.mode, settings.limits.decompressed_batch_mib * MIB)
