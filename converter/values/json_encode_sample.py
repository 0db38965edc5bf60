"""A writer's style from a sample of its values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from converter.values import json_nodes as nodes
from converter.values.json_document import BadValue, Member, Number, Value, parse
from converter.values.json_encode import SCHEMA, STYLE, json_encoder
from converter.values.json_encode_escapes import Escapes
from converter.values.json_encode_order import member_order
from converter.values.json_encode_style import FRACTIONS, NUMBER_FORMS, Style, TimeForm, style_text
from converter.values.json_nodes import Node
from converter.values.json_plan import make_plan
from converter.values.model import BARE_VALUE

#: Values that are looked at, from all over the sample, and their bytes.
VALUES_MAX: Final = 200
_BYTES_MAX: Final = 1024 * 1024
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_COLON: Final = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_TIME: Final = re.compile(r".{10}([Tt ])\d\d:\d\d:\d\d(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII | re.DOTALL)
_DOUBLE: Final = '{"type":"number"}'

Choice = TypeVar("Choice")


@dataclass(slots=True)
class _Seen:
    """What the values show, by numbers of nodes."""

    commas: Counter[str] = field(default_factory=Counter)
    colons: Counter[str] = field(default_factory=Counter)
    escapes: Escapes = field(default_factory=Escapes)
    nulls: Counter[int] = field(default_factory=Counter)
    absent: Counter[int] = field(default_factory=Counter)
    doubles: dict[int, list[str]] = field(default_factory=dict)
    times: dict[int, list[str]] = field(default_factory=dict)
    orders: dict[int, Counter[tuple[int, ...]]] = field(default_factory=dict)


def sample_style(root: Node, sample: pa.BinaryArray) -> Style:
    """The style in which the tree's encoder gives most of the sample back. Values that are no JSON are left out."""
    seen = _Seen()
    numbers = make_plan(root).numbers
    for document in _documents(sample):
        bare = _STRING.sub('""', document.text)
        seen.commas.update(_COMMA.findall(bare))
        seen.colons.update(_COLON.findall(bare))
        seen.escapes.add("".join(_STRING.findall(document.text)))
        _see(root, document, numbers, seen)
    comma, colon = _most(seen.commas, ","), _most(seen.colons, ":")
    # json.dumps() of Python puts spaces behind commas and leaves ASCII only, unless it is told not to.
    escapes = seen.escapes.found(ascii_unless_seen=comma == ", ")
    skip_nulls, nulls_differ = _nulls(seen)
    number, doubles = _doubles(seen.doubles)
    time, times = _spread({node: _time_form(texts) for node, texts in seen.times.items()}, TimeForm())
    return Style(
        comma=comma,
        colon=colon,
        escapes=escapes.forms,
        ascii=escapes.ascii,
        lines=escapes.lines,
        upper=escapes.upper,
        skip_nulls=skip_nulls,
        nulls_differ=nulls_differ,
        number=number,
        numbers=doubles,
        time=time,
        times=times,
        orders=_orders(root, numbers, seen),
    )


def _documents(sample: pa.BinaryArray) -> Iterator[Value]:
    size = 0
    for row in range(0, len(sample), max(1, len(sample) // VALUES_MAX)):
        value = sample[row]
        if not value.is_valid:
            continue
        size += value.as_buffer().size
        if size > _BYTES_MAX:
            return
        try:
            yield parse(value.as_py())
        except BadValue:
            continue


def _see(node: Node, value: Value, numbers: Mapping[int, int], seen: _Seen) -> None:
    content = value.content
    number = numbers[id(node)]
    if node.kind == nodes.STRUCT and isinstance(content, dict):
        _see_members(node, content, numbers, seen)
    elif node.kind == nodes.MAP and isinstance(content, dict):
        for member in content.values():
            _see(node.children[-1], member.value, numbers, seen)
    elif node.kind == nodes.LIST and isinstance(content, list):
        for element in content:
            _see(node.children[0], element, numbers, seen)
    elif node.kind == nodes.NUMBER and isinstance(content, Number):
        seen.doubles.setdefault(number, []).append(content.text)
    elif node.kind == nodes.DATETIME and isinstance(content, str):
        seen.times.setdefault(number, []).append(content)


def _see_members(node: Node, content: Mapping[str, Member], numbers: Mapping[int, int], seen: _Seen) -> None:
    places = {member.name: place for place, member in enumerate(node.members)}
    sequence: dict[int, None] = {}
    for name, member in content.items():
        place = places.get(name, len(places))
        sequence.setdefault(place)
        if name in places:
            child = node.children[place]
            if member.value.content is None:
                seen.nulls[numbers[id(child)]] += 1
            else:
                _see(child, member.value, numbers, seen)
    for name, place in places.items():
        if name not in content:
            seen.absent[numbers[id(node.children[place])]] += 1
    seen.orders.setdefault(numbers[id(node)], Counter())[tuple(sequence)] += 1


def _orders(root: Node, numbers: Mapping[int, int], seen: _Seen) -> dict[int, tuple[int, ...]]:
    """Those that differ from the schema's."""
    orders = {}
    for node in root.walk():
        found = seen.orders.get(numbers[id(node)])
        if found is None or node.kind != nodes.STRUCT:
            continue
        count = len(node.children)
        sequences = Counter({one: n for one, n in found.items() if not one or max(one) < count})
        order = member_order(count, sequences, [member.name for member in node.members])
        if order != tuple(range(count)):
            orders[numbers[id(node)]] = order
    return orders


def _nulls(seen: _Seen) -> tuple[bool, frozenset[int]]:
    """Whether nulls are left out, and the members where it is the other way."""
    skip = seen.absent.total() > seen.nulls.total()
    differ = {
        node
        for node in seen.absent.keys() | seen.nulls.keys()
        if seen.absent[node] != seen.nulls[node] and (seen.absent[node] > seen.nulls[node]) != skip
    }
    return skip, frozenset(differ)


def _doubles(seen: Mapping[int, list[str]]) -> tuple[str, dict[int, str]]:
    """The form of most numbers, and those of nodes where another one fits better."""
    owners = [node for node, texts in seen.items() for _ in texts]
    texts = [text for group in seen.values() for text in group]
    if not texts:
        return Style().number, {}
    column = pa.StructArray.from_arrays([pa.array(list(map(float, texts)))], [BARE_VALUE])
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    fits: dict[str, Counter[int]] = {}
    for name in NUMBER_FORMS:
        encoder = json_encoder({SCHEMA: _DOUBLE, STYLE: style_text(Style(number=name))})
        written = encoder.encode(column.cast(encoder.type), sizes)
        same = zip(owners, texts, written.valid, written.offsets[:-1], written.offsets[1:], strict=True)
        fits[name] = Counter(
            node for node, text, good, p, q in same if good and written.data[p:q].tobytes() == text.encode()
        )
    best = max(fits, key=lambda name: fits[name].total())
    chosen = {node: max([best, *fits], key=lambda name: fits[name][node]) for node in seen}
    return best, {node: name for node, name in chosen.items() if name != best}


def _time_form(texts: list[str]) -> TimeForm:
    matches = [match for match in map(_TIME.fullmatch, texts) if match]
    if not matches:
        return TimeForm()
    digits = [match[2] or "" for match in matches]
    fraction = max(FRACTIONS, key=lambda form: sum(_fraction(form, one) == one for one in digits))
    separators = Counter(match[1] for match in matches)
    return TimeForm(_most(separators, "T"), fraction, _most(Counter(match[3] for match in matches), "Z"))


def _fraction(form: str, digits: str) -> str:
    """The digits behind the point in this form of a time that has these."""
    micros = digits.ljust(6, "0")[:6]
    if form == "micros":
        return micros if micros.strip("0") else ""
    if form == "shortest":
        return micros.rstrip("0")
    if form == "groups":
        return micros if micros[3:] != "000" else micros[:3] if micros[:3] != "000" else ""
    return micros.ljust(9, "0")[: int(form)]


def _most(seen: Counter[str], default: str) -> str:
    return max(seen, key=seen.__getitem__) if seen else default


def _spread(choices: Mapping[int, Choice], default: Choice) -> tuple[Choice, dict[int, Choice]]:
    """The most frequent choice, and the nodes that have others."""
    if not choices:
        return default, {}
    usual, _ = Counter(choices.values()).most_common(1)[0]
    return usual, {node: choice for node, choice in choices.items() if choice != usual}
