"""What a producer can make a bridge read, keep and remember by values that do not fit their columns."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.values.by_writer import Writer
from rsm_bridge import limits
from rsm_bridge.values.registry.schemas import RegisteredSchema
from rsm_bridge.values.typed import inferred, learning
from rsm_bridge.values.typed.inferred import Inferred
from rsm_bridge.values.typed.schemas import SchemaRule, ValueSchemas
from rsm_bridge.values.typed.table import TypedTable

INFERRED = SchemaRule(kind="json", source="inferred", learns=True)
TIMES = {"properties": {"at": {"type": "string", "format": "date-time"}}}


class Registered:
    """A registry that has any id."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, "json", json.dumps({**TIMES, "title": str(schema_id)}), {})


def rows_of(values: list[bytes], error: str) -> tuple[pa.BinaryArray, pa.RecordBatch]:
    texts = pa.array([error] * len(values), pa.string())
    return pa.array(values, pa.binary()), pa.record_batch({"_kafka_error": texts})


def asked_to_infer(
    values: list[bytes], monkeypatch: pytest.MonkeyPatch, error: str = "type_mismatch: …"
) -> list[bytes]:
    """The values that a wider schema would be made from."""
    schemas = ValueSchemas(rule=INFERRED, registry=None)
    schemas.fix(Inferred(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})))
    table = TypedTable(schemas={"value": schemas}, evolve=_no_catalog, executor=ThreadPoolExecutor(1))
    seen: list[bytes] = []

    def infer(_: TypedTable, part: str, given: pa.BinaryArray, wanted: object) -> bool:
        assert (part, wanted is None) == ("value", False)
        seen.extend(given.to_pylist())
        return False

    monkeypatch.setattr(TypedTable, "_infer", infer)
    array, rows = rows_of(values, error)
    given = table.given(pa.record_batch({"_kafka_value": array}))
    assert not table.learned(given, rows)
    return seen


def test_only_some_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_to_infer([b"{}"] * 1000, monkeypatch) == [b"{}"] * limits.MISFITS_READ_MAX


def test_only_small_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    half = b"{" + b" " * (limits.MISFIT_BYTES_READ_MAX // 2)
    assert asked_to_infer([b"{}", half, half, b"{}"], monkeypatch) == [b"{}", half]
    assert asked_to_infer([half + half], monkeypatch) == []


@pytest.mark.parametrize("error", ["undecodable: …", "invalid_utf8: …", "internal: …"])
def test_other_errors_teach_nothing(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_to_infer([b"{}"], monkeypatch, error) == []


def test_what_is_no_object_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_to_infer([b"[1]", b"1", b'"x"'], monkeypatch) == []


def test_no_schema_is_made_wider_for_a_value_of_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = ValueSchemas(rule=INFERRED, registry=None)
    schemas.fix(Inferred('{"type": "object", "properties": {"l": {"type": "array", "items": {"type": "number"}}}}'))
    decoder = schemas.decoder(Writer())
    many = pa.array([b'{"l": [' + b"1," * 1000 + b"1]}"], pa.binary())
    assert learning.fits_one(decoder, many)
    assert limits.MISFIT_CELLS_MAX > 1000
    monkeypatch.setattr(learning, "MISFIT_CELLS_MAX", 100)
    assert learning.fits_one(decoder, many) is None


def test_schemas_whose_times_are_text_are_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.TIMELESS_MAX > 2
    monkeypatch.setattr("rsm_bridge.values.typed.schemas.TIMELESS_MAX", 2)
    registry: Any = Registered()
    schemas = ValueSchemas(rule=SchemaRule(kind="json", source="wire", learns=True), registry=registry)
    assert [schemas.without_times(Writer(number)) for number in (1, 1, 2, 3)] == [True, False, True, False]
    assert [len(schemas.versions(Writer(number))) for number in (1, 2, 3)] == [2, 2, 1]


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, "x", True]), min_size=1), max_size=60))
def test_rows_that_are_odd_in_ever_other_places_never_end_as_dead_letters(odd: list[dict[str, object]]) -> None:
    """As long as places and types are few, in whatever order and mixture they come."""
    plain = dict.fromkeys("abcdef", 1)
    known = Inferred(json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in plain}}))
    schemas = ValueSchemas(rule=INFERRED, registry=None)
    for places in odd:
        value = pa.array([json.dumps({**plain, **places}).encode()], pa.binary())
        if not any(learning.fits_one(decoder, value) for decoder in schemas.decoders_of(known)):
            known = known.widened(value)
        fitting = next(item for item in schemas.decoders_of(known) if learning.fits_one(item, value))
        assert not isinstance(fitting, str)
    assert len(known.wider) < limits.VERSIONS_MAX


def test_members_without_a_type_are_no_reason_to_look() -> None:
    empty = ['{"a":null}', '{"a": [{}], "b":[[ ],null]}', '{"a":{"b":null},"c":[{"d":[]}]}', '{"é\\"":{}}']
    named = ['{"a":[1]}', '{"a":null,"b":{"c":null,"d":0}}', '{"a":"\\"x\\":null"}', '{"a":[[],[{"b":false}]]}']
    column = pa.array([None, *empty, *named], pa.string())
    assert learning.with_other_names(column, "_additional").tolist() == [False] * 5 + [True] * 4


def test_names_that_come_later_are_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (limits.ADDED_PLACES_MAX, limits.ADDITIONS_MAX) == (500, 100)
    monkeypatch.setattr(inferred, "ADDED_PLACES_MAX", 5)
    known = Inferred('{"type": "object", "properties": {"n": {"type": "integer"}}}')

    def told(names: list[str]) -> set[str]:
        nonlocal known
        known = known.more(pa.array([json.dumps(dict.fromkeys(names, 1)).encode()], pa.binary()))
        return set(json.loads(known.texts()[0])["properties"])

    assert told(["n"]) == {"n"}
    assert told(["a", "b", "c"]) == {"n", "a", "b", "c"}
    assert told(["d", "e", "f", "g"]) == {"n", "a", "b", "c", "d", "e"}
    assert told(["f", "g"]) == {"n", "a", "b", "c", "d", "e"}
    monkeypatch.setattr(inferred, "ADDED_PLACES_MAX", 100)
    monkeypatch.setattr(inferred, "ADDITIONS_MAX", 2)
    assert told(["f"]) == {"n", "a", "b", "c", "d", "e"}
    assert Inferred(known.first) != known == inferred.inferred_of("value", inferred.as_properties("value", known))


def test_rows_with_other_names_are_looked_at_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.LOOKS_BETWEEN_MAX > 4
    monkeypatch.setattr(learning, "LOOKS_BETWEEN_MAX", 4)
    looks = learning.Looks()
    looked: list[int] = []
    for piece in range(24):

        def look(piece: int = piece) -> bool:
            looked.append(piece)
            return piece == 15

        assert looks.look(look) == (piece == 15)
    assert looked == [0, 2, 5, 10, 15, 16, 18, 21]


def test_what_is_too_large_to_be_looked_at_keeps_no_other_from_it() -> None:
    looks = learning.Looks()
    assert not any(looks.look(lambda: None) for _ in range(9))
    assert looks.look(lambda: True)


def _no_catalog(*_: object) -> Any:
    raise AssertionError("nobody asked for columns")
