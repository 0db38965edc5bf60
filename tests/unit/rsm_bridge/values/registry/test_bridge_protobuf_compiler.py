"""The Protobuf compiler: imports, messages for people, limits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from converter.values.model import SchemaTextError
from rsm_bridge.values.registry import protobuf_compiler
from rsm_bridge.values.registry.protobuf_compiler import MAIN, protobuf_schema

PLAIN = 'syntax = "proto3"; message M { int32 a = 1; }'


def names(files: bytes) -> list[str]:
    return [file.name for file in FileDescriptorSet.FromString(files).file]


def test_a_schema_with_imports() -> None:
    text = 'syntax = "proto3"; import "a/b.proto"; import "google/protobuf/timestamp.proto"; message M { a.B b = 1; }'
    references = {
        "a/b.proto": 'syntax = "proto2"; package a; import "c.proto"; message B { optional C c = 1; }',
        "c.proto": 'syntax = "proto2"; package a; message C {}',
        "unused.proto": "this is never read",
    }
    assert names(protobuf_schema(text, references)) == [
        "c.proto",
        "a/b.proto",
        "google/protobuf/timestamp.proto",
        MAIN,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("message", "1:"),
        ('syntax = "proto3"; message M { X x = 1; }', '"X" is not defined'),
        ('syntax = "proto3"; import "nowhere.proto";', "nowhere.proto"),
        ('syntax = "proto3"; import "../../../../etc/passwd";', "passwd"),
        (f'syntax = "proto3"; import "{MAIN}";', "recursive"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "already been used"),
        ("\0\xff", ""),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    if not text:
        assert names(protobuf_schema(text)) == [MAIN]
        return
    with pytest.raises(SchemaTextError) as caught:
        protobuf_schema(text)
    assert said in str(caught.value)
    assert "/tmp" not in str(caught.value)
    assert len(str(caught.value)) <= 500


@pytest.mark.parametrize(
    "name", ["", "/etc/x.proto", "../x.proto", "a/../../x.proto", "a//b", "a\\b", "a\0", MAIN, "."]
)
def test_references_stay_in_their_folder(name: str) -> None:
    with pytest.raises(SchemaTextError, match="no path"):
        protobuf_schema(PLAIN, {name: PLAIN})


def test_references_that_exclude_each_other() -> None:
    with pytest.raises(SchemaTextError, match="cannot be a file"):
        protobuf_schema(PLAIN, {"a": PLAIN, "a/b": PLAIN})


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_compiler, "TEXT_BYTES_MAX", 60)
    monkeypatch.setattr(protobuf_compiler, "FILES_MAX", 2)
    assert names(protobuf_schema(PLAIN)) == [MAIN]
    with pytest.raises(SchemaTextError, match="larger than 60"):
        protobuf_schema(PLAIN, {"a.proto": " " * 30})
    with pytest.raises(SchemaTextError, match="more than 2 files"):
        protobuf_schema(PLAIN, {"a.proto": "", "b.proto": ""})
    monkeypatch.setattr(protobuf_compiler, "COMPILED_BYTES_MAX", 10)
    with pytest.raises(SchemaTextError, match="larger than 10 bytes"):
        protobuf_schema(PLAIN)


def test_a_compiler_that_hangs_or_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(compiler))
    compiler.write_text("#!/bin/sh\nexec sleep 30\n")
    compiler.chmod(0o755)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        protobuf_schema(PLAIN, deadline_s=0.3)
    assert time.monotonic() - started < 10
    compiler.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(ChildProcessError, match="signal 9"):
        protobuf_schema(PLAIN)


def test_deep_nesting_does_not_end_the_process() -> None:
    depth = 5_000
    text = 'syntax = "proto3";' + "message M {" * depth + "}" * depth
    with pytest.raises((SchemaTextError, ChildProcessError)):
        protobuf_schema(text)
