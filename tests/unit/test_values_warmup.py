"""The values that warm the decoders up do decode: else less would be warm than is thought."""

from __future__ import annotations

import pyarrow as pa
import pytest

from converter.values import warmup
from converter.values.model import Decoded, Decoder, Encoding


def test_every_decoder_decodes_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def noting(make: object) -> object:
        def made(*given: object) -> Decoder:
            decoder: Decoder = make(*given)  # type: ignore[operator]

            class Noting:
                type = decoder.type

                def decode(self, values: pa.BinaryArray) -> Decoded:
                    found = decoder.decode(values)
                    seen.extend(found.errors.to_pylist())
                    return found

                def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
                    return decoder.encoding(sample)

            return Noting()

        return made

    for name in ("avro_decoder", "protobuf_decoder"):
        monkeypatch.setattr(warmup, name, noting(getattr(warmup, name)))
    warmup.warm_values()
    assert seen == [None, None]
