"""Why settings are refused, in the words of the file: where, what is wrong, and what would be right.

No value is quoted by the words here: it may be a password.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from rsm_bridge.config.section import Section, inner_section, is_list, is_mapping

#: A message names so many problems, each in so many characters.
_PROBLEMS_MAX, _PROBLEM_CHARS_MAX = 8, 400
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
#: What a name of a mapping, not its value, is refused by.
_KEY: Final = "[key]"
#: How like a key must be to be meant. Beside a mapping of others' names it is more often one of those.
_ALIKE, _ALIKE_BESIDE_FREE = 0.6, 0.75
_TEXT: Final = "it must be a text; a number, or true or false, belongs between quotes"
_WHOLE: Final = "it must be a whole number"
_NUMBER: Final = "it must be a number"
_SWITCH: Final = "it must be true or false"
#: By pydantic's name of what is wrong; names in braces are what it says of the rule.
WORDS: Final = {
    "string_type": _TEXT,
    "path_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than_equal": "it must be at most {le:g}",
    "literal_error": "it must be {expected}",
    "string_too_short": "it is empty; write a value, or leave the line out",
    "string_pattern_mismatch": "it must have the form {pattern}",
    "too_short": "it must have an entry",
    "tuple_type": "it must be a list, each entry on a line that begins with -",
    "dict_type": "it must be a mapping, each line of it `name: value`",
    "missing": "it is needed, and not there",
    "invalid_key": "no such setting: a name is a text",
}


def explain(error: ValidationError, root: type[Section], source: str) -> str:
    """One line: the source, and what is wrong at each place.

    Args:
        error: of `root`.
        root: the section that is the whole file.
        source: what the settings were read from.
    """
    lines: dict[str, str] = {}
    problems = error.errors(include_url=False)
    ways = {problem["loc"] for problem in problems}
    for problem in problems:
        way = problem["loc"]
        # A list whose entries are refused counts as one without them.
        if problem["type"] == "too_short" and any(other[: len(way)] == way != other for other in ways):
            continue
        place = _place(way, root)
        line = f"{place.shown}: {_words(problem, place)}"
        # Of a value that may be one thing or another, pydantic says what keeps it from each.
        lines.setdefault(place.shown, line if len(line) <= _PROBLEM_CHARS_MAX else f"{line[:_PROBLEM_CHARS_MAX]}…")
    more = f"; and {len(lines) - _PROBLEMS_MAX} more" if len(lines) > _PROBLEMS_MAX else ""
    return f"{source}: {'; '.join([*lines.values()][:_PROBLEMS_MAX])}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where something is wrong.

    Attributes:
        names: the way there, as far as the file's own names go.
        section: whose keys the last name is one of, or was meant as one of.
        field: of the last key that there is; None above all keys.
        deeper: how many steps it is further down, in a mapping whose names are not ours.
    """

    names: tuple[str, ...]
    section: type[Section]
    field: FieldInfo | None
    deeper: int

    @property
    def shown(self) -> str:
        return ".".join(_plain(name) for name in self.names) or "configuration"


def _place(way: Sequence[str | int], root: type[Section]) -> _Place:
    names: list[str] = []
    section = root
    field: FieldInfo | None = None
    inner: type[Section] | None = root
    for at, part in enumerate(way):
        names.append(str(part))
        if field is not None and is_mapping(field):
            return _Place(names=tuple(names), section=section, field=field, deeper=len(way) - at)
        if isinstance(part, int) and field is not None and is_list(field):
            continue
        section = inner or section
        field = section.keys().get(str(part))
        inner = None if field is None else inner_section(field.annotation)
    return _Place(names=tuple(names), section=section, field=field, deeper=0)


def _words(problem: Any, place: _Place) -> str:
    kind = problem["type"]
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return _no_such(place)
    if problem["loc"][-1:] == (_KEY,):
        return "its name must be a text; a number, or true or false, belongs between quotes"
    if place.deeper > 1:
        return "it must be a text, or a mapping of texts, numbers, true and false"
    if problem["input"] is None:
        return "nothing is there; write a value, or leave the line out"
    if kind == "model_type":
        return f"it must be a mapping of keys{_example(place)}"
    return WORDS.get(kind, "it is nothing that this setting takes").format(**problem.get("ctx", {}))


def _no_such(place: _Place) -> str:
    keys = place.section.keys()
    free = [name for name, field in keys.items() if is_mapping(field)]
    alike = _ALIKE_BESIDE_FREE if free else _ALIKE
    if near := difflib.get_close_matches(place.names[-1].lower(), keys, 1, alike):
        return f"no such setting; did you mean {near[0]}?"
    known = f"there are {', '.join(keys)}"
    if free:
        into = ".".join((*place.names[:-1], free[0]))
        return f"no such setting; keys that are not Tierberg's own belong into `{into}`; {known}"
    return f"no such setting; {known}"


def _example(place: _Place) -> str:
    """With the key that must be there; nothing where none must."""
    inner = None if place.field is None else inner_section(place.field.annotation)
    needed = [name for name, field in (inner or place.section).keys().items() if field.is_required()]
    if not needed:
        return ""
    given = f"{{{needed[0]}: …}}"
    return f", such as `- {given}`" if place.names[-1].isdigit() else f", such as `{place.names[-1]}: {given}`"


def _plain(name: str) -> str:
    """A key as far as it is a name: `sasl.password=abc` in the place of a mapping is one key for YAML."""
    known = _NAME.match(name)
    return name if known is not None and known.end() == len(name) else f"{known.group() if known else ''}…"
