"""The values that warm the decoders up do decode: else less would be warm than is thought."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from converter.types import Int64Array, VarBytes
from converter.values.allowance import Allowance
from converter.values.model import CELLS_UNLIMITED, Decoded, Decoder, Encoder, Encoding
from converter.values.proof import warmup
from converter.values.proof.encoders import encoder

#: Where nothing is cached all of them are compiled here.
pytestmark = pytest.mark.timeout(900)


def test_every_decoder_decodes_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def noting(make: object) -> object:
        def made(*given: object) -> Decoder:
            decoder: Decoder = make(*given)  # type: ignore[operator]

            class Noting:
                type = decoder.type

                def decode(
                    self,
                    values: pa.BinaryArray,
                    cells_max: int = CELLS_UNLIMITED,
                    allowance: Allowance | None = None,
                ) -> Decoded:
                    found = decoder.decode(values, cells_max, allowance)
                    seen.extend(found.errors.to_pylist())
                    return found

                def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
                    return decoder.encoding(sample)

            return Noting()

        return made

    for name in ("avro_decoder", "protobuf_decoder"):
        monkeypatch.setattr(warmup, name, noting(getattr(warmup, name)))
    warmup.warm_values()
    assert len(seen) >= 2
    assert set(seen) == {None}


def test_without_the_libraries_of_protobuf_the_rest_is_warmed() -> None:
    """A plain installation: `tierberg warmup`, and a bridge with JSON topics."""
    code = (
        "import sys; sys.modules['ptars'] = None; from converter.values.proof.warmup import warm_values; warm_values()"
    )
    # find_spec() of a module that is blocked raises; one that is not there answers None.
    hide = (
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: None if n == 'ptars' else f(n, *a); "
    )
    subprocess.run([sys.executable, "-c", hide + code], check=True, timeout=800)


def test_every_encoder_writes_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def noting(encoding: Encoding) -> Encoder:
        made = encoder(encoding)

        class Noting:
            type = made.type

            def encode(self, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
                found = made.encode(columns, sizes)
                seen.extend(found.valid.tolist())
                return found

        return Noting()

    monkeypatch.setattr(warmup, "encoder", noting)
    warmup.warm_values()
    assert seen
    assert all(seen)
