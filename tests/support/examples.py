"""How many examples a property wants, within what the profile allows."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> settings:
    """Settings for so many examples; under the profile `quick` for no more than it has.

    A number in `@settings` alone would hold under every profile.
    """
    quick = settings.get_current_profile_name() == "quick"
    return settings(max_examples=min(count, settings.get_profile("quick").max_examples) if quick else count)
