"""Text as it stands: the bytes are the value, UTF-8 (RFC 3629), and need no schema."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from converter.batches.rows import var_bytes
from converter.kernels.utf8 import valid_utf8
from converter.values.allowance import Allowance
from converter.values.model import BARE_VALUE, CELLS_UNLIMITED, Decoded, Encoding, ValueProblem, error_text

_NO_TEXT = error_text(ValueProblem.INVALID_UTF8, "the bytes are no UTF-8")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextDecoder:
    """A decoder of one bare column of type string."""

    @property
    def type(self) -> pa.StructType:
        """The single column `value`."""
        return pa.struct([pa.field(BARE_VALUE, pa.string())])

    def decode(
        self,
        values: pa.BinaryArray,
        cells_max: int = CELLS_UNLIMITED,  # noqa: ARG002
        allowance: Allowance | None = None,  # noqa: ARG002
    ) -> Decoded:
        """See converter.values.model.Decoder. What is UTF-8 is taken byte for byte; a value is one cell at most."""
        ok = valid_utf8(var_bytes(values))
        bad = pa.array(~ok)
        good = values if ok.all() else values.filter(pa.array(ok))
        text = good.cast(pa.string())
        if len(good) < len(values):
            places = np.cumsum(ok) - 1
            text = text.take(pa.array(places, mask=~ok))
        errors = pa.array([_NO_TEXT], pa.string()).take(pa.array(np.zeros(len(values), np.int64), mask=ok))
        return Decoded(pa.StructArray.from_arrays([text], fields=list(self.type), mask=bad), errors)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:  # noqa: ARG002
        """None: nothing is gained by leaving the bytes out."""
        return None
