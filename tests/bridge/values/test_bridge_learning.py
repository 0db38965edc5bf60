"""Values that do not fit their columns get others, and rows never go; names that come later get columns, too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from rsm_bridge.limits import MISFIT_BYTES_READ_MAX
from rsm_bridge.serving import service
from rsm_bridge.serving.service import Running
from rsm_bridge.values.typed import inferred
from tests.bridge.values.test_bridge_replay_dead_letters import KeyedLog
from tests.bridge.values.test_bridge_typed import rows_of, shown
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, segment_of

DECLARED = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
}


@pytest.fixture(scope="module")
def bridge_folder(tmp_path_factory: pytest.TempPathFactory, policy: str) -> Path:
    return tmp_path_factory.mktemp(policy)


def rules(policy: str) -> list[dict[str, Any]]:
    text = {"from": "inline", "text": json.dumps(DECLARED)}
    found: list[dict[str, Any]] = [
        {"pattern": "declared.*", "value_format": "json", "value_schema": text},
        {"pattern": "keys", "value_format": "json", "key_format": "json"},
        {"pattern": "strict.*", "value_format": "json", "incompatible": "dead-letter"},
        {"pattern": ".*", "value_format": "json"},
    ]
    return [{**rule, "value_bytes": policy} for rule in found]


@pytest.fixture(scope="module")
def bridge(bridge_folder: Path, policy: str) -> Iterator[Running]:
    with bridge_thread(test_settings(bridge_folder, topics=rules(policy))) as running:
        yield running


def copied(shim: ShimClient, topic: str, values: Sequence[bytes], first: int = 0) -> Segment:
    log = LogBuilder(next_offset=first)
    log.batch(values)
    segment = shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16]))
    assert shim.fetch(segment) == log.data
    return segment


def test_a_number_with_a_fraction_where_they_were_whole(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "fractions", [b'{"price": 1, "who": "a"}'] * 3)
    shown(catalog, "fractions", 3)
    copied(shim, "fractions", [b'{"price": 2, "who": "b"}', b'{"price": 2.5, "who": "c"}', b'{"price": 3}'], 3)
    rows = shown(catalog, "fractions", 6)
    assert [row["price"] for row in rows] == [1, 1, 1, 2, None, 3]
    assert [row["price__v2"] for row in rows] == [None, None, None, None, 2.5, None]
    assert [row["who"] for row in rows] == ["a", "a", "a", "b", "c", None]
    assert [row["_kafka_error"] for row in rows] == [None] * 6
    # What comes next fits one or the other, or is the reason for another one; nothing is learned twice.
    copied(shim, "fractions", [b'{"price": 7.25}', b'{"price": "n/a"}', b'{"price": 8}'], 6)
    rows = shown(catalog, "fractions", 9)[6:]
    assert [(row["price"], row["price__v2"], row["price__v3"]) for row in rows] == [
        (None, 7.25, None),
        (None, None, '"n/a"'),
        (8, None, None),
    ]
    properties = catalog.load_table(("kafka", "fractions")).properties
    assert {name for name in properties if name.startswith("tierberg.value-schema")} == {
        "tierberg.value-schema",
        "tierberg.value-schema__v2",
        "tierberg.value-schema__v3",
    }
    assert json.loads(properties["tierberg.value-schema__v2"]) == [[["properties", "price"], {"type": "number"}]]


def test_what_is_no_string_is_in_another_column_than_strings(shim: ShimClient, catalog: Catalog) -> None:
    """As JSON text it would look like one: '1' and 1, 'abc' and '"abc"' were in one column."""
    copied(shim, "strings", [b'{"x": "1", "t": ["a"], "o": {"s": "a"}}'])
    shown(catalog, "strings", 1)
    copied(shim, "strings", [b'{"x": 1}', b'{"t": [1, "2"]}', b'{"o": {"s": {}}}', b'{"x": "2", "t": ["b"]}'], 1)
    rows = shown(catalog, "strings", 5)
    assert [(row["x"], row["x__v2"]) for row in rows] == [
        ("1", None),
        (None, "1"),
        (None,) * 2,
        (None,) * 2,
        ("2", None),
    ]
    assert [(row["t"], row["t__v2"]) for row in rows][2:] == [(None, ["1", '"2"']), (None, None), (["b"], None)]
    assert (rows[0]["o"]["s"], rows[3]["o"]["s"], rows[3]["o"]["s__v2"]) == ("a", None, "{}")
    sources = json.loads(catalog.load_table(("kafka", "strings")).properties["tierberg.sources"])
    assert ["x (JSON text)"] in sources.values()


def test_strings_stay_as_they_are_once_all_places_have_their_new_columns(shim: ShimClient, catalog: Catalog) -> None:
    plain: dict[str, Any] = {**{f"n{number}": number for number in range(20)}, "s": "abc"}
    odd = [json.dumps({**plain, f"n{number}": "odd"}).encode() for number in range(20)]
    copied(shim, "ways", [json.dumps(plain).encode()] * 2)
    shown(catalog, "ways", 2)
    for number, value in enumerate([json.dumps({**plain, "s": 5}).encode(), *odd]):
        copied(shim, "ways", [value], 2 + number)
        shown(catalog, "ways", 3 + number)
    rows = shown(catalog, "ways", 23)
    assert {row["s"] for row in rows} <= {"abc", None}
    assert {row["s__v2"] for row in rows} <= {'"abc"', "5", None}
    assert all((row["s"] is None) != (row["s__v2"] is None) for row in rows)


def test_a_member_that_has_our_columns_name_does_not_take_it(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "ours", [b'{"a": 1, "q": null}'])
    shown(catalog, "ours", 1)
    copied(shim, "ours", [b'{"a": 2, "_additional": "x", "z": 5}', b'{"a": 3, "_additional": {"b": 1}, "q": null}'], 1)
    rows = shown(catalog, "ours", 3)
    assert [row["_additional"] for row in rows] == [
        '{"q": null}',
        '{"_additional": "x"}',
        '{"_additional": {"b": 1},"q": null}',
    ]
    assert [row["z"] for row in rows] == [None, 5, None]
    assert not [name for name in rows[0] if name.startswith("_additional_")]


def test_names_that_java_takes_for_the_same_are_told_apart(shim: ShimClient, catalog: Catalog) -> None:
    """Spark could not read a table with both any more."""
    copied(shim, "turkish", [b'{"il": 1}'])
    shown(catalog, "turkish", 1)
    copied(shim, "turkish", ['{"il": 1, "\u0130L": 2}'.encode()], 1)
    rows = shown(catalog, "turkish", 2)
    assert (rows[1]["il"], rows[1]["\u0130L__case2"]) == (1, 2)


def test_places_within(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "within", [b'{"o": {"n": 1}, "l": [{"q": 1}], "k": 1}'] * 2)
    shown(catalog, "within", 2)
    copied(shim, "within", [b'{"o": {"n": {"x": 1}}, "l": [{"q": 2}], "k": 2}', b'{"l": [{"q": 1.5}]}', b"no json"], 2)
    rows = shown(catalog, "within", 5)
    assert rows[0]["l"][0]["q"] == 1
    assert (rows[2]["k"], rows[2]["o"]["n"], rows[2]["o"]["n__v2"]) == (2, None, '{"x": 1}')
    assert (rows[2]["l"][0]["q"], rows[2]["l"][0]["q__v2"]) == (2, None)  # not odd: as ever
    assert rows[3]["l"][0]["q__v2"] == 1.5
    assert [row["_kafka_error"] and row["_kafka_error"].partition(":")[0] for row in rows] == [
        *[None] * 4,
        "undecodable",
    ]


def test_names_that_come_later(shim: ShimClient, catalog: Catalog, policy: str) -> None:
    copied(shim, "later", [b'{"id": 1, "o": {"x": 1}, "l": [{"q": 1}]}'])
    shown(catalog, "later", 1)
    copied(
        shim,
        "later",
        [b'{"id": 2, "o": {"x": 1, "y": "a"}, "l": [{"q": 2}, {"q": 3, "r": true}], "more": {"z": 0.5}}'],
        1,
    )
    rows = shown(catalog, "later", 2)
    assert rows[1]["more"]["z"] == 0.5
    assert [row["o"]["y"] for row in rows] == [None, "a"]
    assert [item["r"] for item in rows[1]["l"]] == [None, True]
    assert (rows[1]["_additional"], rows[1]["o"]["_additional"]) == (None, None)
    # A name that is null has no type yet; a value that does not fit its name's type has a column of its own.
    copied(
        shim,
        "later",
        [b'{"id": 3, "nothing": null}', b'{"id": 4, "more": {"z": "x"}}', b'{"id": "x", "more": {"z": 1.5}}'],
        2,
    )
    rows = shown(catalog, "later", 5)[2:]
    assert (rows[0]["_additional"], "nothing" in rows[0]) == ('{"nothing": null}', False)
    assert [(row["id"], row["id__v2"]) for row in rows] == [(3, None), (4, None), (None, '"x"')]
    assert (rows[1]["more"]["z"], rows[1]["more"]["z__v2"]) == (None, '"x"')
    properties = catalog.load_table(("kafka", "later")).properties
    assert {name for name in properties if name.startswith("tierberg.value-schema__")} == {
        "tierberg.value-schema__names2",
        "tierberg.value-schema__v2",
        "tierberg.value-schema__v3",
    }


def test_a_name_that_was_null_at_first_gets_a_type(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "nulls", [b'{"id": 1, "op": {"before": null}, "x": null, "l": []}'] * 2)
    rows = shown(catalog, "nulls", 2)
    assert {name for name in rows[0] if not name.startswith("_")} == {"id"}
    assert json.loads(rows[0]["_additional"]) == {"op": {"before": None}, "x": None, "l": []}
    copied(shim, "nulls", [b'{"id": 2, "op": {"before": {"n": 1}}, "x": 5, "l": [[2]]}', b'{"id": 3, "x": null}'], 2)
    rows = shown(catalog, "nulls", 4)
    assert [row["x"] for row in rows] == [None, None, 5, None]
    assert rows[2]["l"] == [[2]]
    assert [row["op"] and row["op"]["before"] and row["op"]["before"]["n"] for row in rows] == [None, None, 1, None]
    assert [row["_additional"] for row in rows[2:]] == [None, None]


@pytest.mark.parametrize("kind", ["{}", '{"a": null, "b": []}'], ids=["empty", "nulls"])
def test_a_topic_that_begins_with_nothing(shim: ShimClient, catalog: Catalog, kind: str) -> None:
    topic = f"nothing{len(kind)}"
    copied(shim, topic, [kind.encode()] * 2)
    assert {name for name in shown(catalog, topic, 2)[0] if not name.startswith("_kafka")} == {"_additional"}
    copied(shim, topic, [b'{"a": 5, "b": ["s"]}', b"{}", b'{"a": 6}'], 2)
    rows = shown(catalog, topic, 5)[2:]
    assert [(row["a"], row["b"] or None) for row in rows] == [(5, ["s"]), (None, None), (6, None)]
    assert [row["_kafka_error"] for row in rows] == [None] * 3


def test_points_in_time_finer_than_microseconds_under_a_declared_schema(shim: ShimClient, catalog: Catalog) -> None:
    fine, coarse = "2024-03-05T12:00:00.123456789Z", "2024-03-05T12:00:00.123456Z"
    copied(shim, "declared", [json.dumps({"id": 1, "at": coarse}).encode()])
    assert "at__v2" not in shown(catalog, "declared", 1)[0]
    copied(shim, "declared", [json.dumps({"id": n, "at": at}).encode() for n, at in ((2, coarse), (3, fine))], 1)
    rows = shown(catalog, "declared", 3)
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [row["at"] is None for row in rows] == [False, False, True]
    assert [row["at__v2"] for row in rows] == [None, None, fine]
    # Other breaches of a schema that was declared are its writer's.
    copied(shim, "declared", [b'{"id": "x"}'], 3)
    assert shown(catalog, "declared", 4)[3]["_kafka_error"].startswith("type_mismatch")


def test_keys(shim: ShimClient, catalog: Catalog) -> None:
    log = KeyedLog(keys=[b'{"id": 1}', b'{"id": 1.5}', b'{"id": 2}', None])
    log.batch([b'{"v": 1}'] * 4)
    shim.copied(segment_of(log, topic="keys", topic_id=b"keys".ljust(16, b".")))
    assert [row["_key"] and row["_key"]["id"] for row in shown(catalog, "keys", 4)] == [1.0, 1.5, 2.0, None]
    log = KeyedLog(next_offset=4, keys=[b'{"id": "x"}', b"no json"])
    log.batch([b'{"v": "y"}', b'{"v": 2}'])
    shim.copied(segment_of(log, topic="keys", topic_id=b"keys".ljust(16, b".")))
    rows = shown(catalog, "keys", 6)[4:]
    assert (rows[0]["_key"], rows[0]["v__v2"]) == ({"id": None, "id__v2": '"x"', "_additional": None}, '"y"')
    assert [row["_kafka_error"] and row["_kafka_error"].partition(":")[0] for row in rows] == [None, "key_undecodable"]


def test_a_large_value_and_blanks_before_values_hide_nothing(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "blanks", [b'\n{"id": 1, "s": "x"}'] * 2)
    shown(catalog, "blanks", 2)
    large = json.dumps({"id": "x", "s": "y" * (MISFIT_BYTES_READ_MAX + 1)}).encode()
    copied(shim, "blanks", [large, b' {"id": 2.5}', b'\t{"id": 3, "new": 1}'], 2)
    rows = shown(catalog, "blanks", 5)[2:]
    assert [(row["id"], row["id__v2"], row["new"]) for row in rows] == [
        (None, None, None),
        (None, 2.5, None),
        (3, None, 1),
    ]
    assert [row["_kafka_error"] is None for row in rows] == [False, True, True]


def test_one_record_that_is_odd_in_several_places_moves_no_others(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "several", [b'{"a": 1, "b": 2, "c": 3}'])
    shown(catalog, "several", 1)
    copied(shim, "several", [b'{"a": "x", "b": "y", "c": 3}'], 1)
    shown(catalog, "several", 2)
    copied(shim, "several", [b'{"a": "z", "b": 5, "c": 4}', b'{"a": 6, "b": "w", "c": 5}'], 2)
    rows = shown(catalog, "several", 4)[1:]
    assert [(row["a"], row["b"], row["c"]) for row in rows] == [(None, None, 3), (None, 5, 4), (6, None, 5)]
    assert [(row["a__v2"], row["b__v2"]) for row in rows] == [('"x"', '"y"'), ('"z"', None), (None, '"w"')]


def test_a_rule_that_wants_no_other_columns(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "strict", [b'{"n": 1}', b'{"n": 1.5}'])
    shown(catalog, "strict", 2)
    copied(shim, "strict", [b'{"n": "x"}', b'{"n": 2}'], 2)
    rows = shown(catalog, "strict", 4)
    assert [row["n"] for row in rows] == [1.0, 1.5, None, 2.0]
    assert rows[2]["_kafka_error"].startswith("type_mismatch")
    assert "n__v2" not in rows[2]


def test_what_one_bridge_learned_the_next_one_knows(
    shim: ShimClient, catalog: Catalog, bridge_folder: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A store in a folder has one bridge; those that share a store do not ask it who they are.
    monkeypatch.setattr(service, "own_folders", lambda *_: None)
    copied(shim, "shared", [b'{"n": 1}'])
    shown(catalog, "shared", 1)
    with bridge_thread(test_settings(bridge_folder, topics=rules(policy))) as other:
        second = ShimClient(other.address)
        copied(second, "shared", [b'{"n": 1.5}'], 1)
        assert shown(catalog, "shared", 2)[1]["n__v2"] == 1.5
        copied(shim, "shared", [b'{"n": 2.5}'], 2)
        copied(second, "shared", [b'{"n": "x"}'], 3)
        rows = shown(catalog, "shared", 4)
    assert [(row["n"], row["n__v2"], row["n__v3"]) for row in rows] == [
        (1, None, None),
        (None, 1.5, None),
        (None, 2.5, None),
        (None, None, '"x"'),
    ]


def test_a_producer_cannot_make_schemas_without_end(
    shim: ShimClient, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inferred, "VERSIONS_MAX", 3)
    names = [f"n{number}" for number in range(5)]
    copied(shim, "endless", [json.dumps(dict.fromkeys(names, 1)).encode()])
    shown(catalog, "endless", 1)
    for number, name in enumerate(names, start=1):
        copied(shim, "endless", [json.dumps({name: "odd"}).encode()], number)
        shown(catalog, "endless", number + 1)
    errors = [row["_kafka_error"] for row in rows_of(catalog, "endless")]
    assert [error and error.partition(":")[0] for error in errors] == [*[None] * 3, *["type_mismatch"] * 3]
