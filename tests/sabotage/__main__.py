"""`python -m tests.sabotage [NAME ...]`: all patches, or the named ones. Ends with 1 when one goes unnoticed."""

from __future__ import annotations

import sys

from tests.sabotage.sabotage_runner import BUILD, Tree, all_patches, judge


def main(names: list[str]) -> int:
    patches = [patch for patch in all_patches() if not names or patch.name in names]
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
