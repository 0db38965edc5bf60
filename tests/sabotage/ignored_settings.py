"""Lets the product ignore one setting, so that the test that is said to see its effect can be seen to fail.

A setting that is ignored reads as its default wherever the product reads it, in child processes too; the file is still
checked as it was given. One without a default reads as a stand-in.

The modules of the settings import this one while they are patched, so it imports nothing of the product.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

_EMPTY_FILE: Final = Path("/dev/null")
#: What an ignored setting reads as where it has no default.
STAND_INS: Final[dict[str, Any]] = {
    "tls.certificate_file": _EMPTY_FILE,
    "tls.key_file": _EMPTY_FILE,
    "tls.clients[].names": ("CN=broker-1",),
    "tls.clients[].clusters": ("*",),
    "tls.clients[].may": "write",
    "store.url": "memory://",
    "schema_registry.url": "http://127.0.0.1:1",
    "topics[].pattern": ".*",
    "topics[].value_schema.from": "registry-id",
    "topics[].key_schema.from": "registry-id",
    "topics[].copies[].table": "another",
    "topics[].copies[].catalog.name": "another",
    "topics[].copies[].catalog.properties": {},
}
#: Whose whole effect is that a validator of the settings accepts what it refuses otherwise.
CHECKED_ONLY: Final = frozenset({"insecure"})


def ignoring(setting: str) -> Callable[[type[BaseModel]], type[BaseModel]]:
    """Decorates the section that holds the setting; of a section with two names, the one that holds the section."""

    def decorated(model: type[BaseModel]) -> type[BaseModel]:
        attribute, below = attribute_of(setting)
        plain = model.__getattribute__

        def read(self: BaseModel, name: str) -> Any:
            found = plain(self, name)
            if name != attribute or (setting not in CHECKED_ONLY and _validating(model)):
                return found
            if below is None:
                return _instead(setting, model, attribute)
            return None if found is None else found.model_copy(update={below: _instead(setting, type(found), below)})

        model.__getattribute__ = read  # type: ignore[method-assign, assignment]
        return model

    return decorated


def _validating(model: type[BaseModel]) -> bool:
    """Whether a private method of the section's module reads: it looks at what the file says."""
    frame = sys._getframe(2)
    while frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        frame = frame.f_back  # a comprehension
    return frame.f_globals.get("__name__") == model.__module__ and frame.f_code.co_name.startswith("_")


def attribute_of(setting: str) -> tuple[str, str | None]:
    """The attribute to replace, and the one below it where the section's class has two names."""
    parts = setting.replace("[]", "").split(".")
    last = {"from": "origin"}.get(parts[-1], parts[-1])
    return (parts[-2], last) if parts[-2:-1] in (["value_schema"], ["key_schema"]) else (last, None)


def _instead(setting: str, model: type[BaseModel], attribute: str) -> Any:
    if setting in STAND_INS:
        return STAND_INS[setting]
    return model.model_fields[attribute].get_default(call_default_factory=True)
