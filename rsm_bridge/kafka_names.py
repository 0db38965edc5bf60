"""Which names Kafka gives topics (its `Topic.validate`)."""

from __future__ import annotations

import re

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka can have a topic of this name."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}
