"""`table_retention` of a topic rule: `follow-kafka`, `keep`, or a duration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from iceberg_catalog.plan.types import Follow, Keep, KeepUntil, Policy
from rsm_bridge.config.durations import DurationError, parse_duration


def parse_retention(value: object) -> str | float:
    """One of the two words, or seconds of a duration text.

    Raises:
        ValueError: neither, or a duration that is too long.
    """
    if isinstance(value, str) and value in {"follow-kafka", "keep"}:
        return str(value)
    try:
        return parse_duration(value)
    except DurationError as error:
        raise ValueError(f"table_retention: {error}; for ever is keep") from error
    except ValueError as error:
        raise ValueError("table_retention is follow-kafka, keep, or a duration such as 30d") from error


TableRetention = Annotated[Literal["follow-kafka", "keep"] | float, BeforeValidator(parse_retention)]


def follow_kafka(_topic: str) -> str | float:
    """The default, for any topic."""
    return "follow-kafka"


def policy_at(retention: str | float, now_ms: int) -> Policy:
    """What the plan does with rows that Kafka's retention deleted, at a time in milliseconds since the epoch."""
    if isinstance(retention, str):
        return Keep() if retention == "keep" else Follow()
    return KeepUntil(now_ms - int(retention * 1000))
