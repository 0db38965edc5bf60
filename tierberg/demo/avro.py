"""The flights as Avro in the wire format of a schema registry, made by the clients that applications use."""

from __future__ import annotations

import json

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tierberg.demo.columns import COLUMNS, Kind
from tierberg.demo.errors import DemoError
from tierberg.demo.events import Flight

_REQUEST_S = 30
_TYPES: dict[Kind, str | dict[str, str]] = {
    "whole": "int",
    "minutes": "double",
    "text": "string",
    "time": {"type": "long", "logicalType": "timestamp-millis"},
}
#: Of a flight that was cancelled, or whose aircraft nobody wrote down.
_MISSING = {"dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"}


def schema() -> str:
    """The flights' schema; what may be missing is nullable, the scheduled hour a time, delays fractions."""
    fields = [
        {"name": name, "type": ["null", _TYPES[kind]] if name in _MISSING else _TYPES[kind]}
        for name, kind in COLUMNS.items()
    ]
    return json.dumps({"type": "record", "name": "Flight", "namespace": "nyc", "fields": fields})


class AvroFlights:
    """Encodes flights for one topic; the first one registers the schema under `<topic>-value`."""

    def __init__(self, registry_url: str, topic: str) -> None:
        """Asks nothing yet."""
        client = SchemaRegistryClient({"url": registry_url, "timeout": _REQUEST_S})
        self._serializer = AvroSerializer(client, schema())
        self._context = SerializationContext(topic, MessageField.VALUE)

    def encode(self, flight: Flight) -> bytes:
        """Magic byte, schema id and the flight in Avro.

        Raises:
            DemoError: the serializer gave nothing.
        """
        fields = {**flight.fields, "time_hour": flight.timestamp_ms}
        value = self._serializer(fields, self._context)
        if value is None:
            raise DemoError("the Avro serializer gave nothing for a flight")
        return bytes(value)
