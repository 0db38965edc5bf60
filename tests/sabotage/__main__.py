"""`python -m tests.sabotage [NAME ...]`: all patches, or the named ones. Ends with 1 when one goes unnoticed.

With `--settings` first, the names are settings: the product ignores each, and the test of its effect must notice.
"""

from __future__ import annotations

import sys

from tests.sabotage.sabotage_runner import BUILD, Tree, all_patches, judge
from tests.sabotage.settings_patches import settings_patches


def main(names: list[str]) -> int:
    if names[:1] == ["--settings"]:
        names, known = names[1:], settings_patches()
    else:
        known = all_patches()
    patches = [patch for patch in known if not names or patch.name in names]
    if unknown := set(names) - {patch.name for patch in patches}:
        print(f"no such patch: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    tree = Tree.copied(BUILD / "tree")
    failed = 0
    for patch in patches:
        verdict = judge(tree, patch)
        print(verdict.line(), flush=True)
        if verdict.problem:
            failed += 1
            print(f"  {verdict.problem}", flush=True)
    tree.release()
    print(f"{len(patches) - failed} passed, {failed} failed")
    return 1 if failed or not patches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
