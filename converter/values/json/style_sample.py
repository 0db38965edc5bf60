"""A writer's style from a sample of its values."""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from converter.values.json import nodes
from converter.values.json.encoder import SCHEMA, STYLE, json_encoder
from converter.values.json.exact_reader import BadValue, Number, ObjectMember, Value, parse
from converter.values.json.nodes import Node, make_plan
from converter.values.json.style import FRACTIONS, NUMBER_FORMS, Style, TimeForm, style_text
from converter.values.model import BARE_VALUE

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


_LINES: Final = "\u2028\u2029"


#: What libraries write as numbers: Go and Jackson's like for HTML, Gson, .NET. They write U+2028 so, too.
_SETS: Final = ("<>&", "<>&='", "<>&'\"+`\x7f")


_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


_USUAL: Final = {char: f"\\{letter}" for letter, char in _LETTERS.items()} | {'"': '\\"', "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class EscapeStyle:
    """See Style: escapes, ascii, lines, upper."""

    forms: Mapping[str, str]
    ascii: bool
    lines: bool
    upper: bool


@dataclass(slots=True)
class Escapes:
    """Counts how characters are written: as themselves, with a backslash, or as numbers."""

    _ascii: Counter[tuple[str, str]] = field(default_factory=Counter)
    _wide: Counter[bool] = field(default_factory=Counter)
    _lines: Counter[bool] = field(default_factory=Counter)
    _upper: Counter[bool] = field(default_factory=Counter)

    def add(self, strings: str) -> None:
        """Looks at JSON strings, side by side with their quotes."""
        for digits, letter in _ESCAPE.findall(strings):
            char = chr(int(digits, 16)) if digits else _LETTERS.get(letter, letter)
            if digits and digits.lower() != digits.upper():
                self._upper[digits == digits.upper()] += 1
            if char.isascii():
                self._ascii[char, "\\u" if digits else f"\\{letter}"] += 1
            elif char in _LINES:
                self._lines[True] += 1
            else:
                self._wide[True] += 1
        for char, count in Counter(_ESCAPE.sub("", strings)).items():
            if char in _LINES:
                self._lines[False] += count
                self._wide[False] += count
            elif not char.isascii():
                self._wide[False] += count
            elif char != '"':
                self._ascii[char, char] += count

    def found(self, *, ascii_unless_seen: bool) -> EscapeStyle:
        """What most of the characters show. `ascii_unless_seen`: escapes of other characters where there are none."""
        best: dict[str, str] = {}
        for (char, form), _ in reversed(self._ascii.most_common()):
            best[char] = form
        numbers = {char for char, form in best.items() if form == "\\u" and char >= " "}
        for group in _SETS:
            if numbers and numbers <= set(group) and not any(best.get(char, "\\u") != "\\u" for char in group):
                best.update(dict.fromkeys(group, "\\u"))
                break
        forms = {char: form for char, form in sorted(best.items()) if form != _usual(char)}
        wide = self._wide[True] > self._wide[False] if self._wide else ascii_unless_seen
        lines = self._lines[True] > self._lines[False] if self._lines else bool(numbers)
        return EscapeStyle(forms, wide, lines, self._upper[True] > self._upper[False])


def _usual(char: str) -> str:
    return _USUAL.get(char, "\\u" if char < " " else char)


#: Values that are looked at, from all over the sample, and their bytes.
VALUES_MAX: Final = 200
_BYTES_MAX: Final = 1024 * 1024
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_COLON: Final = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_TIME: Final = re.compile(r".{10}([Tt ])\d\d:\d\d:\d\d(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII | re.DOTALL)
_DOUBLE: Final = '{"type":"number"}'

Choice = TypeVar("Choice")


@dataclass(slots=True, kw_only=True)
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


def _see_members(node: Node, content: Mapping[str, ObjectMember], numbers: Mapping[int, int], seen: _Seen) -> None:
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


#: Different sequences of members that are looked at, the most frequent first.
_SEQUENCES_MAX: Final = 32


def member_order(count: int, seen: Counter[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    """All of 0 … count - 1 in an order that most of the sequences follow.

    Members no sequence has come as early as the schema's order allows; or, where all sequences are sorted by name and
    not as in the schema, at their place by name.

    Args:
        count: of members.
        seen: sequences of distinct numbers, by how often they were seen.
        names: of the members; those from len(names) on have none and are last where nothing else is seen.
    """
    ranks = list(range(count))
    if not all(map(_rises, seen)) and all(_rises([names[i] for i in one if i < len(names)]) for one in seen):
        by_name = sorted(range(len(names)), key=names.__getitem__)
        for rank, member in enumerate(by_name):
            ranks[member] = rank
    order = sorted(range(count), key=ranks.__getitem__)
    edges: set[tuple[int, int]] = set()
    for sequence, _ in seen.most_common(_SEQUENCES_MAX):
        more = edges | set(itertools.pairwise(sequence))
        places = {member: place for place, member in enumerate(order)}
        if not _rises([places[member] for member in sequence]):
            found = _sorted(ranks, more)
            if found is None:
                continue
            order = found
        edges = more
    return tuple(order)


def _rises(numbers: Sequence[int] | Sequence[str]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))  # type: ignore[operator]


def _sorted(ranks: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int] | None:
    """The order that follows all edges, lowest ranks first; None where they go in a circle."""
    behind: dict[int, list[int]] = {}
    waits = [0] * len(ranks)
    for before, after in edges:
        behind.setdefault(before, []).append(after)
        waits[after] += 1
    ready = [(rank, member) for member, rank in enumerate(ranks) if waits[member] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, member = heapq.heappop(ready)
        order.append(member)
        for after in behind.get(member, ()):
            waits[after] -= 1
            if waits[after] == 0:
                heapq.heappush(ready, (ranks[after], after))
    return order if len(order) == len(ranks) else None
