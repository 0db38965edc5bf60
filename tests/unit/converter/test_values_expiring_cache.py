"""The cache behind the schema registry: bounded by entries, by weight, and by time."""

from __future__ import annotations

from rsm_bridge.values.registry.expiring_cache import ExpiringCache


def kept(cache: ExpiringCache[str, int], now: float = 0.0) -> set[str]:
    return {key for key in "abcd" if cache.get(key, now) is not None}


def test_the_least_recently_used_leaves_first() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(2, 0)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a", 0) == 1
    cache.put("c", 3)
    assert kept(cache) == {"a", "c"}


def test_weight_makes_room_and_what_is_too_heavy_is_not_kept() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(10, 100)
    for key in "abc":
        cache.put(key, 1, weight=40)
    assert kept(cache) == {"b", "c"}
    cache.put("c", 2, weight=60)  # instead of the one there was
    assert kept(cache) == {"b", "c"}
    cache.put("d", 3, weight=101)
    assert kept(cache) == set()
    cache.put("a", 4, weight=100)
    assert kept(cache) == {"a"}


def test_an_entry_ends_with_its_time() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(10, 100)
    cache.put("a", 1, weight=100, end=5.0)
    assert kept(cache, 4.999) == {"a"}
    assert kept(cache, 5.0) == set()
    assert len(cache) == 0
    cache.put("b", 2, weight=100)  # its weight has gone with it
    assert kept(cache, 1e9) == {"b"}
