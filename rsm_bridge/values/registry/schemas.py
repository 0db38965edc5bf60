"""One schema out of a registry, with everything it refers to, within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from rsm_bridge.limits import SCHEMA_BYTES_MAX, SCHEMA_REFERENCE_DEPTH_MAX, SCHEMA_REFERENCES_MAX
from rsm_bridge.values.registry.client import is_unaskable
from rsm_bridge.values.registry.errors import RegistryUnavailableError, SchemaUnusableError, says_none

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

SchemaKind = Literal["avro", "json", "protobuf"]
#: `("id", number)`, or `("subject", name)` for its latest version.
Key = tuple[Literal["id"], int] | tuple[Literal["subject"], str]

_KINDS: Mapping[str, SchemaKind] = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    Attributes:
        id: the number that values carry in their wire format.
        kind: of the text.
        text: the schema itself.
        references: name → text of everything it refers to, directly or not, each after what it refers to itself. Names
            are those the schemas use: an Avro type's full name, a Protobuf import's path, a JSON schema's `$ref`.
    """

    id: int
    kind: SchemaKind
    text: str
    references: Mapping[str, str]

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(map(len, self.references.values()))


def named(key: Key) -> str:
    """The key, for people."""
    return f"schema id {key[1]}" if key[0] == "id" else f"subject {key[1]}"


class SchemaReader:
    """Reads one schema through a client; for one use."""

    def __init__(self, client: SchemaRegistryClient, given_up: Callable[[], bool]) -> None:
        """`given_up` is asked before each request: whether nobody waits any more."""
        self._client = client
        self._given_up = given_up
        self._what = ""
        self._kind = ""
        self._left = SCHEMA_BYTES_MAX
        self._texts: dict[str, str] = {}
        self._seen: dict[str, tuple[str, int]] = {}

    def read(self, key: Key) -> RegisteredSchema:
        """The schema.

        Raises:
            SchemaUnusableError: it is of another kind, too large, or refers to what is not there.
            RegistryUnavailableError: nobody waits any more.
            Exception: whatever the client raises.
        """
        self._what = named(key)
        self._require_waiting()
        if key[0] == "id":
            number, schema = key[1], self._client.get_schema(key[1])
        else:
            version = self._client.get_latest_version(key[1])
            number, schema = cast("int", version.schema_id), version.schema
        kind = _KINDS.get(schema.schema_type or "AVRO")
        if kind is None:
            raise SchemaUnusableError(
                f"{self._what}: a schema of the kind {schema.schema_type!r:.40}, not Avro, JSON or Protobuf"
            )
        self._kind = schema.schema_type or "AVRO"
        text = self._text(schema)
        self._follow(schema, 1)
        return RegisteredSchema(number, kind, text, MappingProxyType(self._texts))

    def _require_waiting(self) -> None:
        if self._given_up():
            raise RegistryUnavailableError(f"{self._what}: nobody waits any more")

    def _text(self, schema: Schema) -> str:
        text = schema.schema_str
        if not isinstance(text, str):
            raise TypeError(f"an answer without a schema's text for {self._what}")
        self._left -= len(text.encode("utf-8", "replace"))
        if self._left < 0:
            raise SchemaUnusableError(f"{self._what}: larger than {SCHEMA_BYTES_MAX} bytes with all it refers to")
        return text

    def _follow(self, schema: Schema, depth: int) -> None:
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None:
                raise SchemaUnusableError(f"{self._what}: a reference without name, subject or version")
            place = (subject, version)
            seen = self._seen.get(name)
            if seen is not None:
                if seen != place:
                    raise SchemaUnusableError(
                        f"{self._what}: {name} is version {seen[1]} of {seen[0]} in one place, version {version} of "
                        f"{subject} in another"
                    )
                continue
            if depth > SCHEMA_REFERENCE_DEPTH_MAX or len(self._seen) >= SCHEMA_REFERENCES_MAX:
                raise SchemaUnusableError(
                    f"{self._what}: refers to more than {SCHEMA_REFERENCES_MAX} others, or deeper than "
                    f"{SCHEMA_REFERENCE_DEPTH_MAX}"
                )
            self._seen[name] = place
            found = self._version(name, subject, version)
            text = self._text(found)
            self._follow(found, depth + 1)
            self._texts[name] = text

    def _version(self, name: str, subject: str, version: int) -> Schema:
        self._require_waiting()
        try:
            # Deleted ones too: what was written with them is still there.
            found = self._client.get_version(subject, version, deleted=True).schema
        except Exception as error:
            if says_none(error):
                raise SchemaUnusableError(
                    f"{self._what}: refers to {name}, version {version} of {subject}, which the registry does not have"
                ) from error
            if is_unaskable(error):
                raise SchemaUnusableError(f"{self._what}: a reference to a subject that no request can name") from error
            raise
        if (found.schema_type or "AVRO") != self._kind:
            raise SchemaUnusableError(f"{self._what}: refers to {name}, which is a schema of another kind")
        return found
