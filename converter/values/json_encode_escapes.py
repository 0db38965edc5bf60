r"""Which characters a writer escapes, from the strings it wrote."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

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
