"""The encoder of an encoding, as segment indexes name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from converter.errors import SegmentError
from converter.values.avro.encoder import avro_encoder
from converter.values.json.encoder import json_encoder
from converter.values.model import Encoder, Encoding
from converter.values.protobuf.encoder import protobuf_encoder

_MAKERS: Final[Mapping[tuple[str, int], Callable[[Mapping[str, str]], Encoder]]] = MappingProxyType(
    {
        ("avro", 1): avro_encoder,
        ("json", 1): json_encoder,
        ("protobuf", 1): protobuf_encoder,
    }
)


def encoder(encoding: Encoding) -> Encoder:
    """What writes values in this encoding.

    Raises:
        SegmentError: `unsupported_version`: a newer release wrote it. `corrupt_object`: its parameters make no encoder.
    """
    make = _MAKERS.get((encoding.kind, encoding.version))
    if make is None:
        raise SegmentError("unsupported_version", f"values are encoded by {encoding.kind} {encoding.version}")
    try:
        return make(encoding.parameters)
    except Exception as error:
        raise SegmentError("corrupt_object", f"no encoder of {encoding.kind} can be made: {error}") from error
