"""docs/rooms.md out of the code: which folder imports which. `python -m tests.support.rooms_page` writes it."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rooms.md"
#: From the top floor down.
ROOMS = ("tierberg", "repartition", "rsm_bridge", "iceberg_catalog", "converter")
_HEAD = """# Rooms

Which folder imports which, drawn from the code by `make rooms`. What a room has beside its folders (errors, limits,
types) everybody may import; it is left out.
"""


@lru_cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in found}


@lru_cache
def imports() -> dict[str, set[str]]:
    """By module: the modules it imports, at its top or inside of functions."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    target = inner if inner in known else node.module
                    if target in known:
                        graph[name].add(target)
    return graph


def folder_of(module: str) -> str | None:
    """`rsm_bridge.storage` for what lies in or below it; None for what a room has beside its folders."""
    parts = module.split(".")
    inside = len(parts) > 2 or (len(parts) == 2 and modules()[module].name == "__init__.py")
    return ".".join(parts[:2]) if inside else None


def page() -> str:
    """The whole page."""
    arrows = set[tuple[str, str]]()
    for name, targets in imports().items():
        for target in targets:
            source, end = folder_of(name), folder_of(target)
            if source is not None and end is not None and source != end:
                arrows.add((source, end))
    parts = [_HEAD]
    for room in ROOMS:
        own = [(one, two) for one, two in sorted(arrows) if one.startswith(f"{room}.") and two.startswith(f"{room}.")]
        lines = "\n".join(f"  {one.removeprefix(f'{room}.')} --> {two.removeprefix(f'{room}.')}" for one, two in own)
        parts.append(f"## {room}\n\n```mermaid\nflowchart LR\n{lines}\n```\n")
    across = sorted({(one.split(".")[0], two) for one, two in arrows if one.split(".")[0] != two.split(".")[0]})
    rows = []
    for room in ROOMS:
        for other in ROOMS:
            if found := [two.removeprefix(f"{other}.") for one, two in across if one == room and two.startswith(other)]:
                rows.append(f"| `{room}` | `{other}` | {', '.join(found)} |")
    parts.append("## From room to room\n\n| room | imports of | folders |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
