"""Protobuf schemas from text. The compiler is a process of its own: what a hostile schema does to it ends with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from converter.values.model import SchemaTextError

#: The name under which the compiler sees the schema itself; an import of it would be a circle.
MAIN: Final = "tierberg_schema.proto"
TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
FILES_MAX: Final = 1_000
COMPILED_BYTES_MAX: Final = 16 * 1024 * 1024
DEADLINE_S: Final = 20.0
_ERROR_CHARACTERS_MAX: Final = 500
_NO_REFERENCES: Final[Mapping[str, str]] = MappingProxyType({})
_PART = re.compile(r"[^/\\\0]{1,200}")


def protobuf_missing() -> str | None:
    """Why Protobuf values cannot become columns in this installation, and what to do; None: they can."""
    if find_spec("ptars") is not None and find_spec("grpc_tools") is not None:
        return None
    return "protobuf needs libraries that are not installed; pip install 'tierberg[typed]'"


def protobuf_schema(
    text: str, references: Mapping[str, str] = _NO_REFERENCES, *, deadline_s: float = DEADLINE_S
) -> bytes:
    """Compiles a .proto file.

    Args:
        text: the file.
        references: what it imports, directly or not: path as in the import statement, and text. google/protobuf/* is
            there without; a reference of that name is not used.
        deadline_s: seconds the compiler may take.

    Returns:
        A serialized FileDescriptorSet, with imports; the schema's own file is the last one and has the name MAIN.

    Raises:
        SchemaTextError: the schema does not compile, or is larger than the limits; with the compiler's first messages.
        TimeoutError: the compiler was not done in time. Not a fault of the schema for certain.
        OSError: the compiler could not be started, or was killed.
    """
    _check(text, references)
    with tempfile.TemporaryDirectory(prefix="tierberg-schema-") as folder:
        root = Path(folder, "files")
        for name, content in {**references, MAIN: text}.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8", newline="")
            except (OSError, ValueError) as error:
                raise SchemaTextError(f"reference {name!r} cannot be a file: {error}") from None
        out = Path(folder, "compiled")
        _compile(root, out, deadline_s)
        if out.stat().st_size > COMPILED_BYTES_MAX:
            raise SchemaTextError(f"the compiled schema is larger than {COMPILED_BYTES_MAX} bytes")
        return out.read_bytes()


def _check(text: str, references: Mapping[str, str]) -> None:
    if len(references) >= FILES_MAX:
        raise SchemaTextError(f"the schema has more than {FILES_MAX} files")
    if sum(len(part) for part in (text, *references.values())) > TEXT_BYTES_MAX:
        raise SchemaTextError(f"schema and references are larger than {TEXT_BYTES_MAX} characters")
    for name in references:
        parts = name.split("/")
        if name == MAIN or any(part in {".", ".."} or not _PART.fullmatch(part) for part in parts):
            raise SchemaTextError(f"reference {name!r} is no path that can be imported")


def _compile(root: Path, out: Path, deadline_s: float) -> None:
    well_known = str(resources.files("grpc_tools") / "_proto")
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", f"-I{well_known}", f"-I{root}"]
    command += ["--include_imports", f"--descriptor_set_out={out}", MAIN]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the Protobuf compiler took longer than {deadline_s} s") from None
    if done.returncode < 0:
        raise ChildProcessError(f"the Protobuf compiler was ended by signal {-done.returncode}")
    if done.returncode != 0 or not out.exists():
        message = done.stderr.decode("utf-8", "replace").replace(f"{root}/", "").strip()
        raise SchemaTextError(message[:_ERROR_CHARACTERS_MAX] or "the Protobuf compiler failed without a message")
