"""Every target by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.fuzz.broken import BROKEN, SOUND
from tests.fuzz.lists import ListPages
from tests.fuzz.schemas import AvroSchemas, JsonSchemas, ProtobufSchemas
from tests.fuzz.segments import CODECS, Segments
from tests.fuzz.settings import CommandLine, Configuration
from tests.fuzz.stored import Damage, ForgedIndex, KafkaFiles, SmallObjects
from tests.fuzz.target import Target
from tests.fuzz.values import AvroValues, JsonValues, ProtobufValues
from tests.fuzz.wire import Messages, Registry, Streams


def targets() -> dict[str, Callable[[], Target]]:
    """Makers of targets by name, in the order they are run."""
    plain: tuple[type[Target], ...] = (
        ForgedIndex, ListPages, SmallObjects, KafkaFiles, AvroValues, JsonValues, ProtobufValues, AvroSchemas,
        JsonSchemas, ProtobufSchemas, Registry, Messages, Streams, Configuration, CommandLine,
    )  # fmt: skip
    found: dict[str, Callable[[], Target]] = {f"segment-{codec}": partial(Segments, codec) for codec in CODECS}
    found |= {f"damage-{part}": partial(Damage, part) for part in ("index", "data", "kept")}
    return found | {kind.name: kind for kind in plain}


def target_named(name: str) -> Target:
    """A new target; those of broken.py too, which are in no run.

    Raises:
        KeyError: there is none of this name.
    """
    return {**targets(), **BROKEN, **SOUND}[name]()
