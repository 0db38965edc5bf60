"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (YAML); see docs/configuration.md.")
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the embedded store and catalog. Overrides `data_dir` of the file."),
]
