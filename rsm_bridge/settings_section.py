"""What all sections of the settings share: unknown keys are refused, and nothing changes after it was read."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping of `tierberg.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
