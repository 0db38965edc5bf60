"""What all sections of the settings share: unknown keys are refused, and nothing changes after it was read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, StrictBool, StrictInt

_Leaf = SecretStr | StrictBool | StrictInt
#: PyIceberg's: texts, and mappings such as `auth`.
CatalogProperties = dict[str, SecretStr | dict[str, _Leaf | dict[str, _Leaf]]]


class Section(BaseModel):
    """A mapping of `tierberg.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def texts(given: Any) -> Any:
    """YAML's `true` and `3` as the texts `"true"` and `"3"`, in a mapping whose values are texts."""
    if not isinstance(given, dict):
        return given
    shown = {True: "true", False: "false"}
    return {
        name: shown[value] if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for name, value in given.items()
    }
