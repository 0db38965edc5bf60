"""What changes of Protobuf and JSON schemas come to: as in evolution_avro.py."""

from __future__ import annotations

from typing import Any

from tests.support.evolution_scenarios import jsons, proto, scenario

LEAF, WIDE_LEAF = "message Leaf { string a = 1; }", "message Leaf { string a = 1; int32 b = 2; }"
INTEGER, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}


def members(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


OTHERS = (
    scenario(
        "proto_add",
        "id: int, who: string",
        proto("message M { int32 id = 1; }", {"id": 1}),
        proto("message M { string who = 2; int32 id = 1; }", {"id": 2, "who": "a"}),
    ),
    scenario(
        "proto_add_inside",
        "l: list<struct<a: string, b: int>>, m: map<string, struct<a: string, b: int>>",
        proto(
            f"message M {{ repeated Leaf l = 1; map<string, Leaf> m = 2; }} {LEAF}",
            {"l": [{"a": "x"}], "m": {"k": {"a": "y"}}},
            {"l": [{"a": "x"}], "m": [("k", {"a": "y"})]},
        ),
        proto(
            f"message M {{ repeated Leaf l = 1; map<string, Leaf> m = 2; }} {WIDE_LEAF}",
            {"l": [{"a": "x", "b": 1}], "m": {"k": {"a": "y", "b": 2}}},
            {"l": [{"a": "x", "b": 1}], "m": [("k", {"a": "y", "b": 2})]},
        ),
    ),
    scenario(
        "proto_int32_to_int64",
        "n: long",
        proto("message M { int32 n = 1; }", {"n": 1}),
        proto("message M { int64 n = 1; }", {"n": 2**40}),
    ),
    scenario(
        "proto_another_type",
        "n: int, n__v2: string",
        proto("message M { int32 n = 1; }", {"n": 1}),
        proto("message M { string n = 1; }", {"n": "x"}, {"n__v2": "x"}),
    ),
    scenario(
        "proto_singular_to_repeated",
        "n: int, n__v2: list<int>",
        proto("message M { int32 n = 1; }", {"n": 1}),
        proto("message M { repeated int32 n = 1; }", {"n": [1, 2]}, {"n__v2": [1, 2]}),
    ),
    scenario(
        "proto_key_of_a_map",
        "m: map<string, int>, m__v2: map<int, int>",
        proto("message M { map<string, int32> m = 1; }", {"m": {"k": 1}}, {"m": [("k", 1)]}),
        proto("message M { map<int32, int32> m = 1; }", {"m": {5: 1}}, {"m__v2": [(5, 1)]}),
    ),
    scenario(
        "proto_renamed",
        "a: int, b: int",
        proto("message M { int32 a = 1; }", {"a": 1}),
        proto("message M { int32 b = 1; }", {"b": 2}),
    ),
    scenario(
        "proto_optional",
        "n: int",
        proto("message M { int32 n = 1; }", {}, {"n": 0}),
        proto("message M { optional int32 n = 1; }", {}, {}),
    ),
    scenario(
        "proto_a_value_of_an_enum",
        "e: string",
        proto("message M { E e = 1; } enum E { A = 0; }", {"e": 1}, {"e": "1"}),
        proto("message M { E e = 1; } enum E { A = 0; B = 1; }", {"e": 1}, {"e": "B"}),
    ),
    scenario(
        "proto_a_member_of_a_oneof",
        "a: int, b: string, c: boolean",
        proto("message M { oneof o { int32 a = 1; string b = 2; } }", {"a": 1}),
        proto("message M { oneof o { int32 a = 1; string b = 2; bool c = 3; } }", {"c": True}),
    ),
    scenario(
        "proto_two_messages",
        "a: string, n: long",
        proto(f"{LEAF} message M {{ int64 n = 1; }}", {"a": "x"}, message="Leaf"),
        proto(f"{LEAF} message M {{ int64 n = 1; }}", {"n": 2**40}, index=1),
    ),
    scenario(
        "proto_within_itself",
        "v: int, next: binary, w: int",
        proto("message M { int32 v = 1; M next = 2; }", {"v": 1, "next": {"v": 2}}, {"v": 1, "next": b"\x08\x02"}),
        proto("message M { int32 v = 1; M next = 2; int32 w = 3; }", {"v": 1, "w": 3}),
    ),
    scenario(
        "json_add",
        "id: long, who: string",
        jsons({"id": INTEGER}, {"id": 1}),
        jsons({"who": STRING, "id": INTEGER}, {"id": 2, "who": "a"}),
    ),
    scenario(
        "json_add_inside",
        "at: list<struct<city: string, zip: long>>",
        jsons({"at": {"type": "array", "items": members(city=STRING)}}, {"at": [{"city": "Ulm"}]}),
        jsons(
            {"at": {"type": "array", "items": members(city=STRING, zip=INTEGER)}}, {"at": [{"city": "Bonn", "zip": 1}]}
        ),
    ),
    scenario(
        "json_integer_to_number",
        "n: long, n__v2: double",
        jsons({"n": INTEGER}, {"n": 1}),
        jsons({"n": NUMBER}, {"n": 0.5}, {"n__v2": 0.5}),
    ),
    scenario(
        "json_text_to_object",
        "x: string, x__v2: struct<y: long>",
        jsons({"x": STRING}, {"x": "t"}),
        jsons({"x": members(y=INTEGER)}, {"x": {"y": 1}}, {"x__v2": {"y": 1}}),
    ),
    scenario(
        "json_nullable",
        "id: long",
        jsons({"id": INTEGER}, {"id": 1}, required=["id"]),
        jsons({"id": {"type": ["integer", "null"]}}, {"id": None}, {}),
    ),
    scenario(
        "json_opened",
        "id: long, _additional: string",
        jsons({"id": INTEGER}, {"id": 1}),
        jsons(
            {"id": INTEGER}, {"id": 2, "new": [1]}, {"id": 2, "_additional": '{"new": [1]}'}, additionalProperties=True
        ),
    ),
    scenario(
        "json_an_unknown_member_becomes_known",
        "id: long, _additional: string, new: long",
        jsons({"id": INTEGER}, {"id": 1, "new": 5}, {"id": 1, "_additional": '{"new": 5}'}, additionalProperties=True),
        jsons({"id": INTEGER, "new": INTEGER}, {"id": 2, "new": 6}, additionalProperties=True),
    ),
    scenario(
        "json_dots_and_case",
        "a_b: long, a_b__case2: long, A: long, a__case2: long",
        jsons({"a.b": INTEGER}, {"a.b": 1}, {"a_b": 1}),
        jsons(
            {"a_b": INTEGER, "A": INTEGER, "a": INTEGER},
            {"a_b": 2, "A": 3, "a": 4},
            {"a_b__case2": 2, "A": 3, "a__case2": 4},
        ),
    ),
    scenario(
        "json_a_value_that_does_not_fit",
        "id: long, who: string",
        jsons({"id": INTEGER}, {"id": "x"}, "type_mismatch"),
        jsons({"id": INTEGER, "who": STRING}, {"id": 2, "who": "a"}),
    ),
)
