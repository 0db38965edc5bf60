"""Reads `tierberg.yaml` into plain values. Whatever is wrong with it is said by place, never by what stands there.

A line of the file may hold a password, and YAML's own messages quote lines, names of anchors and tags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode

from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import SETTINGS_FILE_BYTES_MAX, SETTINGS_VALUES_MAX

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
#: How PyYAML's messages begin, before they quote.
_ONE_DOCUMENT = "expected a single document in the stream"
_AT_A_TAB = "found character '\\t'"
_MISPLACED = ("mapping values are not allowed", "expected <block end>", "could not find expected ':'")
_ADVICE = "a value with one of % & * ! @ ` { [ # : in it belongs between quotes"


class _RefusedError(ConstructorError):
    """YAML that we do not take; its words are ours, and quote nothing."""


class _Loader(yaml.SafeLoader):
    """Dates stay texts: no setting is one. A key that comes twice is an error: the first would be lost unseen."""

    yaml_implicit_resolvers: ClassVar[Any] = {  # type: ignore[misc]  # PyYAML's is of the class, too
        first: [entry for entry in entries if entry[0] != _TIMESTAMP]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, ScalarNode) else None
            if name in seen:
                raise _RefusedError(problem="a key that comes twice", problem_mark=key.start_mark)
            if name is not None and name != "<<":
                seen.add(name)
        return super().construct_mapping(node, deep)


def read_settings_file(path: Path) -> dict[str, Any]:
    """The mapping that the file holds; an empty one for an empty file.

    Raises:
        SettingsError: it cannot be read, is larger than SETTINGS_FILE_BYTES_MAX, is no YAML or no mapping, has a key
            twice, or has more than SETTINGS_VALUES_MAX values, those that anchors repeat counted each time.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SETTINGS_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or 'cannot be opened'}") from error
    if len(data) > SETTINGS_FILE_BYTES_MAX:
        raise SettingsError(f"{path}: larger than {SETTINGS_FILE_BYTES_MAX} bytes")
    try:
        loaded = _loaded(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 from byte {error.start} on") from None
    except yaml.MarkedYAMLError as error:
        # No cause: a traceback would show the line.
        raise SettingsError(f"{path}{_place(error)}: {_problem(error)}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{path}: a character that YAML does not allow") from None
    except RecursionError:
        raise SettingsError(f"{path}: nested too deep") from None
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
        raise SettingsError(f"{path}: a number, tag or key that YAML cannot hold; {_ADVICE}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise SettingsError(f"{path}: must be a mapping of keys")
    return loaded


def _loaded(text: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count(root: Node) -> None:
    """Anchors make exponentially much of a short text: so each use counts, before anything is built."""
    sizes: dict[int, int] = {}
    open_nodes: list[tuple[Node, bool]] = [(root, False)]
    building: set[int] = set()
    while open_nodes:
        node, done = open_nodes.pop()
        inner = [item for pair in node.value for item in (pair if isinstance(pair, tuple) else (pair,))]
        inner = [] if isinstance(node, ScalarNode) else inner
        if done:
            building.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(item)] for item in inner)
            if sizes[id(node)] > SETTINGS_VALUES_MAX:
                raise _RefusedError(problem=f"more than {SETTINGS_VALUES_MAX} values", problem_mark=node.start_mark)
        elif id(node) in building:
            raise _RefusedError(problem="an anchor within itself", problem_mark=node.start_mark)
        elif id(node) not in sizes:
            building.add(id(node))
            open_nodes.append((node, True))
            open_nodes += [(item, False) for item in inner]


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Our own words, or the likely cause by YAML's rule, without what was found."""
    rule = str(error.problem)
    if isinstance(error, _RefusedError):
        return rule
    if isinstance(error, ComposerError) and error.context == _ONE_DOCUMENT:
        return "a second document (---) begins here; the file must be one"
    if rule.startswith(_AT_A_TAB):
        return "not YAML; a tab stands where spaces belong: indent with spaces alone"
    if rule.startswith(_MISPLACED):
        return f"not YAML; keys of one section begin in the same column, further in than its name; or {_ADVICE}"
    return f"not YAML; {_ADVICE}"
