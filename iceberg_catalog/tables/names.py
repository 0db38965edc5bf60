"""Topic → table name, without looking anything up.

Lower-case, because several engines fold case; `.` and `-` become `_`, because both need quoting in SQL. Different
topics can meet in one name (`Orders` and `orders`, `a-b` and `a_b`), and a topic that is deleted and created again is a
new topic (new topic id) whose rows have the same offsets. The first owner keeps the plain name; every later one gets
the plain name, `_`, and eight hex digits that depend on cluster, topic and topic id only, so every bridge finds the
same table without asking another.

| topic | table |
|---|---|
| `Orders` | `orders` |
| `orders`, while `Orders` owns the name | `orders_5f1c3a08` |
| `a.b-c` | `a_b_c` |
| `orders` created again | `orders_` + eight other digits |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from iceberg_catalog.limits import TABLE_NAME_CHARS_MAX

_FOLD = str.maketrans({".": "_", "-": "_"})
_SUFFIX_DIGITS = 8
_SUFFIX = re.compile(rf"_[0-9a-f]{{{_SUFFIX_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose table it is. `topic_id` is Kafka's, 16 bytes; a topic created again has another one."""

    cluster: str
    topic: str
    topic_id: bytes


def table_name(topic: str) -> str:
    """The plain name: lower-case, `.` and `-` as `_`, cut to TABLE_NAME_CHARS_MAX characters."""
    return topic.lower().translate(_FOLD)[:TABLE_NAME_CHARS_MAX]


#: Topic → plain name of its table.
PlainName = Callable[[str], str]


def fallback_name(owner: Owner, plain: PlainName = table_name) -> str:
    """The name for an owner whose plain name belongs to somebody else."""
    identity = b"\0".join((owner.cluster.encode(), owner.topic.encode(), owner.topic_id))
    return f"{plain(owner.topic)}_{hashlib.sha256(identity).hexdigest()[:_SUFFIX_DIGITS]}"


def is_name_of(name: str, topic: str, plain: PlainName = table_name) -> bool:
    """Whether a table of the topic may have this name, whatever its cluster and topic id."""
    bases = (plain(topic), table_name(topic))
    return any(name.startswith(base) and (name == base or _SUFFIX.fullmatch(name[len(base) :])) for base in bases)
