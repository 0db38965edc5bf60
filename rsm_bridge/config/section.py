"""What all sections of the settings share: unknown keys are refused, and nothing changes after it was read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

_Leaf = SecretStr | StrictBool | StrictInt
#: PyIceberg's: texts, and mappings such as `auth`.
CatalogProperties = dict[str, SecretStr | dict[str, _Leaf | dict[str, _Leaf]]]


class Section(BaseModel):
    """A mapping of `tierberg.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _nothing_below_is_nothing_said(cls, given: Any) -> Any:
        """`catalog:` with no line below it, or with comments alone, is as if it were absent."""
        if not isinstance(given, dict):
            return given
        nested = {name for name, field in cls.keys().items() if holds_more(field)}
        return {name: value for name, value in given.items() if value is not None or name not in nested}

    @field_validator("*", mode="before")
    @classmethod
    def _no_nul(cls, given: Any) -> Any:
        """No path, name, address or password can have one, and what they are given to says so in its own way."""
        if isinstance(given, str | Path) and "\0" in str(given):
            raise ValueError("it has a NUL character in it")
        return given

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """Its keys as the file spells them."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}


def inner_section(annotation: Any) -> type[Section] | None:
    """The section that a key's value is, or that each entry of a list is; None: neither."""
    inner = [item for option in get_args(annotation) for item in get_args(option)]
    for candidate in (annotation, *get_args(annotation), *inner):
        if isinstance(candidate, type) and get_origin(candidate) is None and issubclass(candidate, Section):
            return candidate
    return None


def is_list(field: FieldInfo) -> bool:
    """Whether a key's value is a list."""
    return _has(field, tuple)


def is_mapping(field: FieldInfo) -> bool:
    """Whether a key's value is a mapping whose names are not ours."""
    return _has(field, dict)


def holds_more(field: FieldInfo) -> bool:
    """Whether a key's value is a section, a list or a mapping."""
    return inner_section(field.annotation) is not None or is_list(field) or is_mapping(field)


def _has(field: FieldInfo, kind: type) -> bool:
    return any(get_origin(option) is kind for option in (field.annotation, *get_args(field.annotation)))


def texts(given: Any) -> Any:
    """YAML's `true` and `3` as the texts `"true"` and `"3"`, in a mapping whose values are texts."""
    if not isinstance(given, dict):
        return given
    shown = {True: "true", False: "false"}
    return {
        name: shown[value] if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for name, value in given.items()
    }


def _written_out(given: Any) -> Any:
    """A path's `~` is the home folder, as a shell has it; a variable would be the name of a folder."""
    if not isinstance(given, str | Path):
        return given
    if not str(given).strip():
        raise ValueError("it is empty; name a path, or leave the line out")
    if "$" in str(given):
        raise ValueError("no $ may be in it: variables are not read here; write the path out (~ is the home folder)")
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise ValueError("nobody knows the home folder that its ~ stands for; write the path out") from None


FilePath = Annotated[Path, BeforeValidator(_written_out)]
