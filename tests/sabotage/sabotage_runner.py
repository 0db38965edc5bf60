"""Plants known bugs, one after another, in a copy of the project; each must turn a named test red.

A patch is a unified diff in `patches/` whose first line names its test: `# test: tests/unit/test_x.py::test_y`. A hunk
is applied where its old lines stand, whatever their number; it must find them exactly once, so a patch that no longer
fits the code is an error and never passes for a caught bug. The test must pass before the patch and *fail* with it: an
error in collection or set-up, a test that is not there and a time-out count as broken patches.

Compiled kernels are cached per content of all kernel files. A cache of numba notices a change of a kernel's own file
only, not of a kernel that it calls from another one, and would hide such a patch.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
BUILD = ROOT / "build" / "sabotage"
TEST_SECONDS_MAX = 600
#: Caught by tests that need no compiled kernels: the sample of the fast suite.
SAMPLE = ("withdrawal_raises_floor", "gap_believed_at_once", "put_if_absent_overwrites", "owner_stamp_ignored")


class PatchError(Exception):
    """The patch does not fit the code, or its file is malformed."""


@dataclass(frozen=True)
class Hunk:
    """One place of one file; `old` and `new` are whole lines."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Patch:
    """One idea of a bug, and the test that must notice it."""

    name: str
    test: str
    hunks: tuple[Hunk, ...]


def read_patch(path: Path) -> Patch:
    """Parses one diff. Raises PatchError for a file of another form."""
    lines = path.read_text().splitlines(keepends=True)
    if not lines or not lines[0].startswith("# test: "):
        raise PatchError(f"{path.name}: the first line is not `# test: ...`")
    target = ""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines[1:]:
        if line.startswith("+++ "):
            target = line[4:].strip().removeprefix("b/")
        elif line.startswith("@@"):
            blocks.append((target, []))
        elif line.startswith(("--- ", "# ")) or not blocks:
            continue
        elif line[0] in " +-":
            blocks[-1][1].append(line)
        else:
            raise PatchError(f"{path.name}: {line!r} is no line of a diff")
    hunks = tuple(
        Hunk(
            file,
            "".join(line[1:] for line in body if line[0] in " -"),
            "".join(line[1:] for line in body if line[0] in " +"),
        )
        for file, body in blocks
    )
    if not hunks or any(hunk.old == hunk.new or not hunk.path for hunk in hunks):
        raise PatchError(f"{path.name}: no change")
    return Patch(path.stem, lines[0].removeprefix("# test: ").strip(), hunks)


def all_patches() -> list[Patch]:
    return [read_patch(path) for path in sorted(PATCHES.glob("*.diff"))]


@dataclass
class Tree:
    """A copy of what git knows and of new files that it does not ignore.

    The copy that all runs share keeps its place, since caches of kernels go by path; one run at a time has it.
    """

    folder: Path
    _lock: IO[str] | None = None
    _green: dict[str, str] = field(default_factory=dict)

    @classmethod
    def copied(cls, folder: Path) -> Tree:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            timeout=60,
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("a+")
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)  # with its time: caches of kernels look at it
        return cls(folder, lock)

    def release(self) -> None:
        """Lets the next run have the copy."""
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def patched(self, patch: Patch) -> Iterator[None]:
        """The tree with the patch, for the time of the block. Raises PatchError when it does not apply."""
        before: dict[Path, tuple[bytes, int]] = {}
        try:
            for hunk in patch.hunks:
                path = self.folder / hunk.path
                if not path.is_file():
                    raise PatchError(f"{patch.name}: there is no {hunk.path}")
                text = path.read_text()
                if text.count(hunk.old) != 1:
                    raise PatchError(f"{patch.name}: a hunk fits {text.count(hunk.old)} places of {hunk.path}")
                before.setdefault(path, (path.read_bytes(), path.stat().st_mtime_ns))
                path.write_text(text.replace(hunk.old, hunk.new))
            yield
        finally:
            for path, (content, modified_ns) in before.items():
                path.write_bytes(content)
                os.utime(path, ns=(modified_ns, modified_ns))

    def kernels(self) -> str:
        """Names the content of all files with kernels."""
        digest = hashlib.sha256()
        for path in sorted((self.folder / "converter").glob("*.py")):
            content = path.read_bytes()
            if b"kernel" in content:
                digest.update(path.name.encode() + content)
        return digest.hexdigest()[:16]

    def run(self, test: str) -> str:
        """`passed`, `failed`, or what else became of the test, in words."""
        report = self.folder / ".report.xml"
        report.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "NUMBA_CACHE_DIR": str(BUILD / "numba" / self.kernels()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.folder),
        }
        # Plain assertions: explaining two long lists that differ takes pytest minutes, for each example that shrinks.
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--assert=plain",
            "--timeout", "300", "--junitxml", str(report), test,
        ]  # fmt: skip
        try:
            ended = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=TEST_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {TEST_SECONDS_MAX} s"
        return outcome(report, ended.returncode, ended.stdout + ended.stderr)

    def green(self, test: str) -> str:
        """The outcome without any patch; run once per test."""
        if test not in self._green:
            self._green[test] = self.run(test)
        return self._green[test]


def outcome(report: Path, code: int, output: str) -> str:
    """pytest's report in one word or one sentence."""
    if not report.is_file():
        return f"pytest ended with {code}: {output.strip()[-500:]}"
    suites = list(ET.parse(report).getroot().iter("testsuite"))
    names = ("tests", "failures", "errors", "skipped")
    counts = {name: sum(int(suite.get(name, "0")) for suite in suites) for name in names}
    if counts["errors"] or counts["skipped"] or not counts["tests"] or code not in (0, 1):
        return f"pytest ended with {code}, {counts}: {output.strip()[-500:]}"
    messages = [item.get("message") or "" for suite in suites for item in suite.iter("failure")]
    if any("Timeout" in message and "pytest-timeout" in message for message in messages):
        return "timed out"
    return "failed" if counts["failures"] else "passed"


@dataclass(frozen=True)
class Verdict:
    """What became of one patch; `problem` is empty when its test noticed it."""

    patch: Patch
    problem: str
    seconds: float

    def line(self) -> str:
        return f"{'✗' if self.problem else '✓'} {self.patch.name:<34} {self.seconds:6.1f} s  {self.patch.test}"


def judge(tree: Tree, patch: Patch) -> Verdict:
    """Runs the patch's test without and with it."""
    started = time.monotonic()
    problem = ""
    try:
        before = tree.green(patch.test)
        if before != "passed":
            problem = f"without the patch the test {before}"
        else:
            with tree.patched(patch):
                after = tree.run(patch.test)
            if after == "passed":
                problem = "nobody noticed: the test passes with the patch"
            elif after != "failed":
                problem = f"with the patch the test {after}"
    except PatchError as error:
        problem = str(error)
    return Verdict(patch, problem, time.monotonic() - started)
