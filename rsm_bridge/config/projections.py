"""`topics[].copies`: second copies (projections) of a topic's table, laid out by the user's keys.

`tierberg repartition` derives them from the topic's table.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from rsm_bridge.config.durations import Seconds
from rsm_bridge.config.layout_terms import COLUMN_PATH, partition_term, require_apart, row_order
from rsm_bridge.config.section import CatalogProperties, Section, texts

ProjectionMode = Literal["append", "upsert"]
Envelope = Literal["none", "debezium"]
RowWrites = Literal["copy-on-write", "merge-on-read"]
KeyOrder = Literal["partition", "timestamp", "source"]

#: What the name of a projection's table of dead letters has behind the projection's.
DEAD_LETTERS: Final = "__dead_letters"
_TOPIC: Final = "{topic}"
_OF_UPSERT: Final = frozenset(
    {"adopt", "envelope", "unavailable_value", "soft_deletes", "key_order", "source_order", "row_writes"}
)


class ProjectionCatalog(Section):
    """The Iceberg catalog of a projection, where it is not that of the topic's own table."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The catalog's name.")
    properties: CatalogProperties = Field(
        description="PyIceberg's catalog properties, as in `catalog.properties`; the environment adds to them likewise."
    )

    _plain_texts = field_validator("properties", mode="before")(texts)


class ProjectionRule(Section):
    """One table derived from a topic's table by `tierberg repartition`."""

    table: str = Field(
        description="Its name, without or with a namespace: lower-case letters, digits and `_`; `{topic}` is the plain "
        "name of the topic's own table. Without a namespace it lies beside that."
    )
    catalog: ProjectionCatalog | None = Field(
        default=None, description="Its catalog. Default: that of the topic's table."
    )
    mode: ProjectionMode = Field(
        default="append",
        description="`append`: every record, once. `upsert`: the latest record of each key, in Kafka's order; a "
        "tombstone deletes.",
    )
    key: tuple[str, ...] = Field(
        default=(), description="With `upsert`: the columns of the result that make a row's key; never null."
    )
    adopt: bool = Field(
        default=False,
        description="With `upsert`: a table of this name that the user made becomes the projection. Its rows count as "
        "older than every record. Refused, with the reasons, where runs would change its layout or lose a column.",
    )
    envelope: Envelope = Field(
        default="none",
        description="`debezium`: values are change events with `before`, `after` and `op`; a row is `after`, and `op` "
        "`d` deletes, by `before` or Kafka's key. `select` may name the struct `_event` with `op`, `ts_ms` and "
        "`source`. With `upsert` only.",
    )
    unavailable_value: str = Field(
        default="__debezium_unavailable_value",
        description="With `envelope: debezium`: what the connector writes for a value that did not change and that it "
        "does not know (its `unavailable.value.placeholder`); the column keeps what the row had. Empty: it is a value "
        "like any other.",
    )
    soft_deletes: bool = Field(
        default=False,
        description="With `upsert`: a row that is deleted stays as it was, with `__deleted` true. What leaves by "
        "`where`, by `retention` or by a truncation goes all the same.",
    )
    key_order: KeyOrder = Field(
        default="partition",
        description="With `upsert`. `partition`: a key lives in one Kafka partition; one that is met in another stops "
        "the projection. `timestamp`: it may move; the later Kafka timestamp wins, then the higher partition and "
        "offset. `source`: likewise, by the columns of `source_order`.",
    )
    source_order: tuple[str, ...] = Field(
        default=(),
        description="With `key_order: source`: columns of the result that order the changes of a key, compared one "
        "after the other, such as the position in the source's log. Null comes first; a delete that says none of them "
        "is a dead letter.",
    )
    explode: str | None = Field(
        default=None,
        description="With `append`: a list or map of the topic's table, nested ones with dots. Each of its items is a "
        "row: `_item`, a map's as a struct of `key` and `value`, with its place from 0 as `_item_position`. Records "
        "without items have no row.",
    )
    select: tuple[str, ...] = Field(
        default=("*",),
        description="SQL expressions of Spark over the topic's columns (with `debezium`: of the row's). "
        "`_kafka_partition` and `_kafka_offset` are added where they are missing. Each row must stand alone: no "
        "aggregates, window functions or subqueries.",
    )
    where: str | None = Field(default=None, description="SQL condition of Spark; rows it does not hold for stay out.")
    partition_by: tuple[str, ...] = Field(
        default=(),
        description="Iceberg's transforms of columns, nested ones with dots: `day(ts)`, `bucket(16, customer.id)`, "
        "`truncate(4, code)`, `region`.",
    )
    sort_by: tuple[str, ...] = Field(
        default=(),
        description="`column [asc|desc] [nulls first|last]`; the order of rows within each file. `zorder(a, b)` alone: "
        "compaction puts rows together that are near in all of these columns.",
    )
    target_file_mib: int = Field(default=128, ge=1, le=8192, description="Size that data files are made for, in MiB.")
    retention: Seconds | None = Field(
        default=None,
        description="Rows whose `_kafka_timestamp` is older leave the projection with its maintenance. Kafka's "
        "retention does not delete from it. Default: they stay.",
    )
    hold: Seconds = Field(
        default=7 * 86400.0,
        ge=0,
        description="How long rows that Kafka's retention deleted, or the topic's deletion, stay in the topic's table "
        "because this projection has not read them, counted from the delete. `tierberg status` warns from half of it "
        "on. `0s`: not at all. Nothing to a table with `table_retention: keep`.",
    )
    format_version: Literal[2, 3] = Field(
        default=2, description="Of the Iceberg table. `3` has deletion vectors, which fewer engines read."
    )
    row_writes: RowWrites = Field(
        default="merge-on-read",
        description="With `upsert`. `merge-on-read`: position deletes (deletion vectors in version 3), compacted by "
        "maintenance. `copy-on-write`: files that changed are written again; readers see no delete files.",
    )

    @field_validator("table")
    @classmethod
    def _names_a_table(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", value.replace(_TOPIC, "_")):
            raise ValueError(f"use lower-case letters, digits and _, dots between namespaces, and {_TOPIC}")
        return value

    @field_validator("explode")
    @classmethod
    def _is_a_path(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(COLUMN_PATH, value):
            raise ValueError(f"{value!r} is no column: use its name, with dots for what is within it")
        return value

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _terms_parse(cls, value: tuple[str, ...], info: Any) -> tuple[str, ...]:
        if info.field_name == "partition_by":
            require_apart([partition_term(text) for text in value])
        else:
            row_order(value)
        return value

    @model_validator(mode="after")
    def _fits_the_mode(self) -> ProjectionRule:
        if (self.mode == "upsert") != bool(self.key):
            raise ValueError("mode: upsert takes key, and mode: append takes none")
        if len(set(self.key)) != len(self.key):
            raise ValueError("key names a column twice")
        if (self.key_order == "source") != bool(self.source_order):
            raise ValueError("key_order: source takes source_order, and no other key_order does")
        if self.mode == "append":
            given = _OF_UPSERT & self.model_fields_set
            if given:
                raise ValueError(f"mode: append takes no {' and no '.join(sorted(given))}")
        elif self.explode is not None:
            raise ValueError("mode: upsert takes no explode: which items a record no longer has is said nowhere")
        order, whole = row_order(self.sort_by), {text.strip() for text in self.partition_by}
        if order.interleaved and all(term.column in whole for term in order.terms):
            raise ValueError("sort_by: in a partition all rows are alike in these columns, which partition_by names")
        return self

    @property
    def leaves_out(self) -> bool:
        """Whether a change may not say some of a row's columns, which then stay as they are."""
        return self.soft_deletes or (self.envelope == "debezium" and bool(self.unavailable_value))

    def table_of(self, plain: str, namespace: str) -> tuple[str, ...]:
        """Namespace levels and name.

        Args:
            plain: name of the topic's own table.
            namespace: of that table; dots part its levels.
        """
        levels = tuple(self.table.replace(_TOPIC, plain).split("."))
        return levels if len(levels) > 1 else (*namespace.split("."), *levels)
