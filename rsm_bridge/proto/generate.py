"""Writes `rsm_pb2.py` and `rsm_pb2.pyi` from the one .proto. A test compares the committed files with a fresh run."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO_ROOT = HERE.parent.parent / "proto"
SOURCE = "tierberg/v1/rsm.proto"
NAMES = ("rsm_pb2.py", "rsm_pb2.pyi")


def generate(target: Path) -> None:
    """Writes both modules into the folder `target`.

    Raises:
        RuntimeError: the compiler refused the file.
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]  # a development dependency: the running bridge never needs the compiler

    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{PROTO_ROOT}", f"--python_out={folder}", f"--pyi_out={folder}", SOURCE]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc refused {SOURCE}")
        for name in NAMES:
            shutil.copyfile(Path(folder) / Path(SOURCE).parent / name, target / name)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
