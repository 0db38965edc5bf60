"""Rules of `topics`: how the values and keys of topics are stored, and where the schemas of typed ones come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema

from converter.types import Mode, ValueFormat
from iceberg_catalog.limits import TABLE_NAME_CHARS_MAX
from iceberg_catalog.tables.names import table_name
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.retention import TableRetention
from rsm_bridge.config.section import FilePath, Section
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import SCHEMA_BYTES_MAX

RuleFormat = Literal["raw", "string", "json", "avro", "protobuf", "auto"]
SchemaOrigin = Literal["registry-id", "subject", "inline", "inferred"]
Incompatible = Literal["new-column", "dead-letter"]
ValueBytes = Literal["always", "proven"]
#: The two parts of a record that may be typed, as the names of a rule's keys begin.
Part = Literal["value", "key"]

#: Formats with columns of a schema.
TYPED: Final = frozenset({"json", "avro", "protobuf", "auto"})
_TOPIC: Final = "{topic}"
#: Patterns that stay compiled.
_PATTERNS_KEPT: Final = 4096
_FORMATS = (
    "`json`, `avro`, `protobuf`: columns of a schema. `auto`: such columns for what carries the wire format of the "
    "`schema_registry`, of whatever kind its schema is; bytes for the rest."
)


class SchemaSource(Section):
    """Where the schemas of a typed format come from.

    `{from: registry-id}`, `{from: subject, subject: "{topic}-value"}`, `{from: inline, file: order.avsc}`,
    `{from: inferred}`.
    """

    origin: SchemaOrigin = Field(
        alias="from",
        description="`registry-id`: each record names its schema by the registry's wire format. `subject`: the latest "
        "version of a subject, for records that are the bare encoding. `inline`: the one given here, for such records "
        "too. `inferred`: from the first records; JSON only.",
    )
    subject: str | None = Field(
        default=None,
        min_length=1,
        description="With `subject`: its name, `{topic}` being the topic's. Default: `{topic}-value`, `{topic}-key`.",
    )
    text: str | None = Field(default=None, min_length=1, description="With `inline`: the schema itself.")
    file: FilePath | None = Field(default=None, description="With `inline`: a file that has it instead, UTF-8.")
    message: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        description="Protobuf, with `subject` or `inline`: full name of the message. Default: the first of the schema.",
    )

    @model_validator(mode="after")
    def _keys_fit_the_origin(self) -> SchemaSource:
        allowed = {"subject": {"subject", "message"}, "inline": {"text", "file", "message"}}.get(self.origin, set())
        given = {name for name in ("subject", "text", "file", "message") if getattr(self, name) is not None}
        if wrong := sorted(given - allowed):
            raise ValueError(f"from: {self.origin} takes no {' and no '.join(wrong)}")
        if self.origin == "inline" and len(given & {"text", "file"}) != 1:
            raise ValueError("from: inline takes either text or file")
        if self.subject is not None and re.search(r"[{}]", self.subject.replace(_TOPIC, "")):
            raise ValueError(f"subject: only {_TOPIC} may stand in braces")
        return self

    def inline_text(self) -> str:
        """The schema of `from: inline`; the file is read anew each time.

        Raises:
            SettingsError: the file cannot be read, is larger than SCHEMA_BYTES_MAX, or no UTF-8.
            ValueError: the origin is another.
        """
        if self.text is not None:
            return self.text
        if self.file is None:
            raise ValueError(f"from: {self.origin} has no text")
        try:
            with self.file.open("rb") as opened:
                content = opened.read(SCHEMA_BYTES_MAX + 1)
            if len(content) > SCHEMA_BYTES_MAX:
                raise SettingsError(f"{self.file}: larger than {SCHEMA_BYTES_MAX} bytes")
            return content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"schema {self.file}: {error}") from error


class TopicRule(Section):
    """How the topics that match are stored. The first rule that matches decides."""

    pattern: str = Field(
        description="Regular expression (Rust's: no look-around, no back-references), matched against the whole topic "
        "name."
    )
    value_format: RuleFormat = Field(
        default="raw",
        description="`raw`: values are the column `_kafka_value` (binary). `string`: values that are valid UTF-8 are "
        f"the column `value` (string), others stay in `_kafka_value`. {_FORMATS}",
    )
    value_schema: SchemaSource | None = Field(
        default=None,
        description="Where schemas of values come from. Default: `{from: inferred}` for `json`, `{from: registry-id}` "
        "for the other typed formats.",
    )
    key_format: RuleFormat = Field(
        default="raw",
        description="The same for keys, which are always the column `_kafka_key` (binary). `raw`: that alone. All "
        "others: the column `_key` beside it, of type string under `string`; a key that does not decode is null there, "
        "and `_kafka_error` says why.",
    )
    key_schema: SchemaSource | None = Field(default=None, description="The same for keys.")
    mode: Mode = Field(
        default="table",
        description="`table`: convert. `verbatim`: store the segment's bytes as they are; no rows, no table.",
    )
    table: str | None = Field(
        default=None,
        description="Name of the table in `catalog.namespace`: lower-case letters, digits and `_`; `{topic}` is the "
        "name it would have otherwise. Of several topics that meet in one name the first has it, others get a suffix. "
        "Default: the topic's name in lower case, `.` and `-` as `_`.",
    )
    incompatible: Incompatible = Field(
        default="new-column",
        description="What becomes of a field whose new type its column cannot take. `new-column`: a column `name__v2`. "
        "`dead-letter`: records of that schema have no columns, and `_kafka_error` says why.",
    )
    value_bytes: ValueBytes = Field(
        default="always",
        description="`always`: `_kafka_value` has the bytes of every value. `proven`: of a typed value only where its "
        "columns do not give exactly these bytes back; Kafka is served what they give back, compared with the batch's "
        "checksum.",
    )
    decode_budget: float = Field(
        default=1.0,
        ge=0,
        le=64,
        description="CPU time that decoding a topic may take while its segments are copied, as a share of one core of "
        "this bridge. Beyond it copies store bytes only and the columns follow. `0`: they always follow.",
    )
    table_retention: TableRetention = Field(
        default="follow-kafka",
        description="When rows leave the table. `follow-kafka`: when Kafka's retention deletes them. `keep`: never. A "
        "duration: once Kafka has deleted them and they are older than it, a file at a time, by the file's newest "
        "timestamp. Applies to what is deleted from then on, and to what is still in the table.",
    )

    copies: tuple[ProjectionRule, ...] = Field(
        default=(),
        description="Second copies (projections): tables that `tierberg repartition` derives from the topic's table.",
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        for expression in (value, _whole(value)):  # `a)|(b` is none, and would be one within the other
            try:
                _compiled(expression)
            except SchemaError as error:
                raise ValueError(f"not a regular expression of Rust's: {_fault(error)}") from error
        return value

    @field_validator("table")
    @classmethod
    def _names_a_table(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not re.fullmatch(r"[a-z0-9_]+", value.replace(_TOPIC, "_")):
            raise ValueError(f"use lower-case letters, digits and _, and {_TOPIC} for the topic's own name")
        if len(value.replace(_TOPIC, "")) > TABLE_NAME_CHARS_MAX:
            raise ValueError(f"longer than {TABLE_NAME_CHARS_MAX} characters")
        return value

    @model_validator(mode="after")
    def _formats_and_schemas_fit(self) -> TopicRule:
        parts: tuple[Part, ...] = ("value", "key")
        for part in parts:
            _require_fit(part, self.format_of(part), self.value_schema if part == "value" else self.key_schema)
        if self.value_bytes == "proven" and self.value_format not in TYPED:
            raise ValueError(f"value_bytes: proven goes by columns, and value_format {self.value_format} has none")
        if self.mode == "verbatim" and self.copies:
            raise ValueError("mode: verbatim stores no rows, so it takes no projections")
        if self.mode == "verbatim":
            typed = [f"{part}_format" for part in parts if self.format_of(part) != "raw"]
            if self.table is not None or typed:
                wrong = " and no ".join(["table"] * (self.table is not None) + typed)
                raise ValueError(f"mode: verbatim stores no rows, so it takes no {wrong}")
        return self

    def format_of(self, part: Part) -> RuleFormat:
        """`value_format` or `key_format`."""
        return self.value_format if part == "value" else self.key_format

    def source_of(self, part: Part) -> SchemaSource | None:
        """Where the schemas come from, the default too; None for formats without."""
        form = self.format_of(part)
        if form not in TYPED:
            return None
        given = self.value_schema if part == "value" else self.key_schema
        return given or SchemaSource.model_validate({"from": "inferred" if form == "json" else "registry-id"})

    def subject_of(self, part: Part, topic: str) -> str:
        """The subject that `{from: subject}` means for a topic."""
        source = self.source_of(part)
        named = None if source is None else source.subject
        return (named or f"{_TOPIC}-{part}").replace(_TOPIC, topic)

    def table_of(self, topic: str) -> str:
        """The plain name of a topic's table; the one it gets unless that belongs to another."""
        plain = table_name(topic)
        return plain if self.table is None else self.table.replace(_TOPIC, plain)[:TABLE_NAME_CHARS_MAX]

    def needs_registry(self) -> tuple[Part, ...]:
        """The parts whose schemas come out of the registry."""
        parts: tuple[Part, ...] = ("value", "key")
        sources = {part: self.source_of(part) for part in parts}
        return tuple(part for part, source in sources.items() if source and source.origin in {"registry-id", "subject"})


def matching(rules: Sequence[TopicRule], topic: str) -> int | None:
    """The place of the first rule whose pattern matches the whole name, from 0; None when there is none."""
    return next((place for place, rule in enumerate(rules) if _matches(rule.pattern, topic)), None)


@lru_cache(maxsize=_PATTERNS_KEPT)
def _compiled(expression: str) -> SchemaValidator:
    """Rust's regular expressions take time by the length of a name alone: Python's may take hours of one name."""
    return SchemaValidator(core_schema.str_schema(pattern=expression, regex_engine="rust-regex"))


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _matches(pattern: str, topic: str) -> bool:
    return _compiled(_whole(pattern)).isinstance_python(topic)


def _fault(error: SchemaError) -> str:
    """What is wrong, of a message that shows the expression with a mark below it first."""
    return str(error).strip().splitlines()[-1].strip().removeprefix("SchemaError: ").removeprefix("error: ")


def stored_format(form: RuleFormat) -> ValueFormat:
    """What a table of this format begins as: typed ones as bytes, and their columns are added to that."""
    return "string" if form == "string" else "raw"


def _require_fit(part: Part, form: RuleFormat, source: SchemaSource | None) -> None:
    if source is None:
        return
    where = f"{part}_schema"
    if form not in TYPED:
        raise ValueError(f"{where}: {part}_format {form} has no schema; use json, avro or protobuf, or leave it out")
    if form == "auto" and source.origin != "registry-id":
        raise ValueError(f"{where}: {part}_format auto goes by the wire format; name json, avro or protobuf instead")
    if source.origin == "inferred" and form != "json":
        raise ValueError(f"{where}: from: inferred is for json; {form} values do not say what is in them")
    if source.message is not None and form != "protobuf":
        raise ValueError(f"{where}: message is for protobuf, not for {form}")
