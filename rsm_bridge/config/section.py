"""What all sections of the settings share: unknown keys are refused, and nothing changes after it was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, StrictBool, StrictInt, field_validator

_Leaf = SecretStr | StrictBool | StrictInt
#: PyIceberg's: texts, and mappings such as `auth`.
CatalogProperties = dict[str, SecretStr | dict[str, _Leaf | dict[str, _Leaf]]]


class Section(BaseModel):
    """A mapping of `tierberg.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_nul(cls, given: Any) -> Any:
        """No path, name, address or password can have one, and what they are given to says so in its own way."""
        if isinstance(given, str | Path) and "\0" in str(given):
            raise ValueError("it has a NUL character in it")
        return given


def texts(given: Any) -> Any:
    """YAML's `true` and `3` as the texts `"true"` and `"3"`, in a mapping whose values are texts."""
    if not isinstance(given, dict):
        return given
    shown = {True: "true", False: "false"}
    return {
        name: shown[value] if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for name, value in given.items()
    }
