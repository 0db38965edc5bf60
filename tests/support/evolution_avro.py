"""What changes of an Avro schema come to: versions, the table's columns after all of them, each version's row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from tests.support.evolution_scenarios import (
    array,
    avro,
    decimal,
    mapping,
    opt,
    record,
    renamed,
    scenario,
)

ONE = avro(record(id="int"), {"id": 1})
PAIR = avro(record(id="int", who="string"), {"id": 1, "who": "a"})
CITY, WIDE_CITY = record("At", city="string"), record("At", city="string", zip="int")
ULM, BONN = {"city": "Ulm"}, {"city": "Bonn", "zip": 53111}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": opt("Node")}],
}
WIDER_NODE = {**NODE, "fields": [*NODE["fields"], {"name": "w", "type": "string"}]}
MOMENT = dt.datetime(2026, 11, 22, 1, 2, 3, tzinfo=dt.UTC)
MANY = record(id="int", **{f"f{number}": "int" for number in range(2_001)})
LONG_NAME = "n" * 1_001

AVRO = (
    scenario("avro_add_last", "id: int, who: string", ONE, PAIR),
    scenario(
        "avro_add_first", "id: int, who: string", ONE, avro(record(who="string", id="int"), {"who": "a", "id": 1})
    ),
    scenario(
        "avro_add_in_the_middle",
        "id: int, who: string, mid: boolean",
        PAIR,
        avro(record(id="int", mid="boolean", who="string"), {"id": 2, "mid": True, "who": "b"}),
    ),
    scenario(
        "avro_add_in_a_struct",
        "at: struct<city: string, zip: int>",
        avro(record(at=CITY), {"at": ULM}),
        avro(record(at=WIDE_CITY), {"at": BONN}),
    ),
    scenario(
        "avro_add_in_a_list",
        "at: list<struct<city: string, zip: int>>",
        avro(record(at=array(CITY)), {"at": [ULM, ULM]}),
        avro(record(at=array(WIDE_CITY)), {"at": [BONN]}),
    ),
    scenario(
        "avro_add_in_a_map",
        "at: map<string, struct<city: string, zip: int>>",
        avro(record(at=mapping(CITY)), {"at": {"x": ULM}}, {"at": [("x", ULM)]}),
        avro(record(at=mapping(WIDE_CITY)), {"at": {"y": BONN}}, {"at": [("y", BONN)]}),
    ),
    scenario(
        "avro_add_far_inside",
        "at: list<map<string, struct<in: struct<city: string, zip: int>>>>",
        avro(
            record(at=array(mapping(record("S", **{"in": CITY})))),
            {"at": [{"x": {"in": ULM}}]},
            {"at": [[("x", {"in": ULM})]]},
        ),
        avro(
            record(at=array(mapping(record("S", **{"in": WIDE_CITY})))),
            {"at": [{"x": {"in": BONN}}]},
            {"at": [[("x", {"in": BONN})]]},
        ),
    ),
    scenario("avro_int_to_long", "id: long", ONE, avro(record(id="long"), {"id": 2**40})),
    scenario("avro_long_to_int", "id: long", avro(record(id="long"), {"id": 2**40}), ONE),
    scenario(
        "avro_int_to_long_inside",
        "l: list<long>, m: map<string, long>, s: struct<n: long>",
        avro(
            record(l=array("int"), m=mapping("int"), s=record("S", n="int")),
            {"l": [1], "m": {"k": 1}, "s": {"n": 1}},
            {"l": [1], "m": [("k", 1)], "s": {"n": 1}},
        ),
        avro(
            record(l=array("long"), m=mapping("long"), s=record("S", n="long")),
            {"l": [2**40], "m": {"k": 2**41}, "s": {"n": 2**42}},
            {"l": [2**40], "m": [("k", 2**41)], "s": {"n": 2**42}},
        ),
    ),
    scenario(
        "avro_more_digits",
        "d: decimal(20, 2)",
        avro(record(d=decimal(9, 2)), {"d": Decimal("1.25")}),
        avro(record(d=decimal(20, 2)), {"d": Decimal("123456789012345678.25")}),
        avro(record(d=decimal(4, 2)), {"d": Decimal("-99.99")}),
    ),
    scenario(
        "avro_another_scale",
        "d: decimal(9, 2), d__v2: decimal(9, 3)",
        avro(record(d=decimal(9, 2)), {"d": Decimal("1.25")}),
        avro(record(d=decimal(9, 3)), {"d": Decimal("1.125")}, {"d__v2": Decimal("1.125")}),
    ),
    scenario(
        "avro_int_into_double", "n: double", avro(record(n="double"), {"n": 0.5}), avro(record(n="int"), {"n": 3})
    ),
    scenario(
        "avro_float_to_double", "n: double", avro(record(n="float"), {"n": 0.5}), avro(record(n="double"), {"n": 0.1})
    ),
    scenario(
        "avro_int_to_double",
        "n: int, n__v2: double",
        avro(record(n="int"), {"n": 3}),
        avro(record(n="double"), {"n": 0.5}, {"n__v2": 0.5}),
    ),
    scenario(
        "avro_optional", "id: int, who: string", PAIR, avro(record(id="int", who=opt("string")), {"id": 2, "who": None})
    ),
    scenario(
        "avro_required",
        "id: int, who: string",
        avro(record(id=opt("int"), who=opt("string")), {"id": None, "who": "z"}),
        PAIR,
    ),
    scenario(
        "avro_another_order", "id: int, who: string", PAIR, avro(record(who="string", id="int"), {"who": "b", "id": 2})
    ),
    scenario(
        "avro_renamed",
        "id: int, name: string",
        avro(record(id="int", who="string"), {"id": 1, "who": "a"}, {"id": 1, "name": "a"}),
        avro(record(id="int", name=renamed("string", "who")), {"id": 2, "name": "b"}),
    ),
    scenario(
        "avro_renamed_twice",
        "third: long",
        avro(record(first="int"), {"first": 1}, {"third": 1}),
        avro(record(second=renamed("int", "first")), {"second": 2}, {"third": 2}),
        avro(record(third=renamed("long", "second", "first")), {"third": 2**40}),
    ),
    scenario(
        "avro_renamed_inside",
        "at: list<struct<town: string>>",
        avro(record(at=array(CITY)), {"at": [ULM]}, {"at": [{"town": "Ulm"}]}),
        avro(record(at=array(record("At", town=renamed("string", "city")))), {"at": [{"town": "Bonn"}]}),
    ),
    scenario(
        "avro_renamed_without_alias",
        "id: int, who: string, name: string",
        PAIR,
        avro(record(id="int", name="string"), {"id": 2, "name": "b"}),
    ),
    scenario(
        "avro_renamed_to_another_type",
        "who: string, name: int",
        avro(record(who="string"), {"who": "a"}),
        avro(record(name=renamed("int", "who")), {"name": 2}),
    ),
    scenario(
        "avro_names_swapped",
        "a: int, b: int",
        avro(record(a="int", b="int"), {"a": 1, "b": 2}),
        avro(record(a=renamed("int", "b"), b=renamed("int", "a")), {"a": 3, "b": 4}),
    ),
    scenario("avro_dropped", "id: int, who: string", PAIR, ONE),
    scenario(
        "avro_dropped_and_back",
        "id: int, who: string",
        PAIR,
        ONE,
        avro(record(id="int", who=opt("string")), {"id": 3, "who": "c"}),
    ),
    scenario(
        "avro_dropped_and_back_as_another_type",
        "id: int, who: string, who__v2: int",
        PAIR,
        ONE,
        avro(record(id="int", who="int"), {"id": 3, "who": 9}, {"id": 3, "who__v2": 9}),
    ),
    scenario(
        "avro_three_types",
        "id: long, id__v2: string, id__v3: boolean, at: int",
        ONE,
        avro(record(id="string"), {"id": "x"}, {"id__v2": "x"}),
        avro(record(id="boolean"), {"id": True}, {"id__v3": True}),
        avro(record(id="long", at=opt("int")), {"id": 5, "at": None}, {"id": 5}),
    ),
    scenario(
        "avro_a_variants_name_is_taken",
        "id: int, id__v2: boolean, id__v3: string",
        avro(record(id="int", id__v2="boolean"), {"id": 1, "id__v2": True}),
        avro(record(id="string"), {"id": "x"}, {"id__v3": "x"}),
    ),
    scenario(
        "avro_another_type_inside",
        "at: struct<city: string, city__v2: int>",
        avro(record(at=CITY), {"at": ULM}),
        avro(record(at=record("At", city="int")), {"at": {"city": 3}}, {"at": {"city__v2": 3}}),
    ),
    scenario(
        "avro_struct_to_primitive",
        "at: struct<city: string>, at__v2: string",
        avro(record(at=CITY), {"at": ULM}),
        avro(record(at="string"), {"at": "Ulm"}, {"at__v2": "Ulm"}),
    ),
    scenario(
        "avro_primitive_to_list_to_map",
        "x: int, x__v2: list<int>, x__v3: map<string, int>",
        avro(record(x="int"), {"x": 1}),
        avro(record(x=array("int")), {"x": [2]}, {"x__v2": [2]}),
        avro(record(x=mapping("int")), {"x": {"k": 3}}, {"x__v3": [("k", 3)]}),
    ),
    scenario(
        "avro_what_a_list_holds",
        "x: list<int>, x__v2: list<string>",
        avro(record(x=array("int")), {"x": [1]}),
        avro(record(x=array("string")), {"x": ["a"]}, {"x__v2": ["a"]}),
    ),
    scenario(
        "avro_with_zone_and_without",
        "t: timestamptz, t__v2: timestamp",
        avro(record(t={"type": "long", "logicalType": "timestamp-micros"}), {"t": MOMENT}),
        avro(
            record(t={"type": "long", "logicalType": "local-timestamp-micros"}),
            {"t": MOMENT.replace(tzinfo=None)},
            {"t__v2": MOMENT.replace(tzinfo=None)},
        ),
    ),
    scenario(
        "avro_symbols",
        "e: string",
        avro(record(e={"type": "enum", "name": "E", "symbols": ["A"]}), {"e": "A"}),
        avro(record(e={"type": "enum", "name": "E", "symbols": ["B", "A"]}), {"e": "B"}),
        avro(record(e="string"), {"e": "C"}),
    ),
    scenario(
        "avro_a_branch_more",
        "u: struct<int: int, string: string, boolean: boolean>",
        avro(record(u=["int", "string"]), {"u": 1}, {"u": {"int": 1}}),
        avro(record(u=["boolean", "string", "int"]), {"u": True}, {"u": {"boolean": True}}),
    ),
    scenario(
        "avro_optional_to_union",
        "u: string, u__v2: struct<string: string, int: int>",
        avro(record(u=opt("string")), {"u": "a"}),
        avro(record(u=["null", "string", "int"]), {"u": "b"}, {"u__v2": {"string": "b"}}),
    ),
    scenario(
        "avro_names_that_differ_by_case",
        "id: int, ID__case2: int, Id__case3: string",
        ONE,
        avro(record(id="int", ID="int"), {"id": 2, "ID": 3}, {"id": 2, "ID__case2": 3}),
        avro(record(Id="string"), {"Id": "x"}, {"Id__case3": "x"}),
    ),
    scenario(
        "avro_names_of_ours",
        "id: int, x_kafka_offset: string, x_KAFKA_mine: int, x_key: int, x_pos: int",
        ONE,
        avro(
            record(id="int", _kafka_offset="string", _KAFKA_mine="int", _key="int", _pos="int"),
            {"id": 2, "_kafka_offset": "o", "_KAFKA_mine": 3, "_key": 4, "_pos": 5},
            {"id": 2, "x_kafka_offset": "o", "x_KAFKA_mine": 3, "x_key": 4, "x_pos": 5},
        ),
    ),
    scenario(
        "avro_within_itself",
        "v: int, next: string, w: string",
        avro(NODE, {"v": 1, "next": {"v": 2, "next": None}}, {"v": 1, "next": '{"v":2,"next":null}'}),
        avro(
            WIDER_NODE,
            {"v": 1, "next": {"v": 2, "next": None, "w": "y"}, "w": "x"},
            {"v": 1, "next": '{"v":2,"next":null,"w":"y"}', "w": "x"},
        ),
    ),
    scenario("avro_bare_to_record", "value: int, id: int", avro("int", 7, {"value": 7}), ONE),
    scenario("avro_bare_to_wider", "value: long", avro("int", 7, {"value": 7}), avro("long", 2**40, {"value": 2**40})),
    scenario(
        "avro_a_record_without_fields_gains_one",
        "s: boolean, s__v2: struct<city: string>",
        avro(record(s=record("At")), {"s": {}}, {"s": True}),
        avro(record(s=CITY), {"s": ULM}, {"s__v2": ULM}),
    ),
    scenario(
        "avro_all_at_once",
        "id: long, name: string, d: decimal(9, 1), at: struct<city: string, zip: int>, tags: list<string>",
        avro(
            record(id="int", who="string", d=decimal(4, 1), at=CITY),
            {"id": 1, "who": "a", "d": Decimal("1.5"), "at": ULM},
            {"id": 1, "name": "a", "d": Decimal("1.5"), "at": ULM},
        ),
        avro(
            record(tags=array("string"), at=WIDE_CITY, d=decimal(9, 1), name=renamed(opt("string"), "who"), id="long"),
            {"tags": ["t"], "at": BONN, "d": Decimal("12345678.5"), "name": None, "id": 2**40},
        ),
    ),
    scenario(
        "avro_too_many_columns",
        "id: int, who: string",
        PAIR,
        avro(MANY, {"id": 1, **{f"f{number}": 0 for number in range(2_001)}}, "incompatible_schema"),
        ONE,
    ),
    scenario(
        "avro_a_name_too_long",
        "id: int",
        ONE,
        avro(record(id="int", **{LONG_NAME: "int"}), {"id": 1, LONG_NAME: 1}, "incompatible_schema"),
    ),
    scenario(
        "strict_another_type",
        "id: int, who: string",
        ONE,
        avro(record(id="string", more="int"), {"id": "x", "more": 1}, "incompatible_schema"),
        PAIR,
    ),
    scenario(
        "strict_another_type_inside",
        "at: struct<city: string, zip: int>",
        avro(record(at=CITY), {"at": ULM}),
        avro(record(at=record("At", city="int")), {"at": {"city": 3}}, "incompatible_schema"),
        avro(record(at=WIDE_CITY), {"at": BONN}),
    ),
)
