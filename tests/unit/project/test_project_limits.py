"""A limit that nothing enforces promises nothing: each constant of a `limits.py` is used, and tested by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: The product's rooms. Deadlines of the test stack and of benchmarks are no promises.
ROOMS = ("converter", "iceberg_catalog", "rsm_bridge", "repartition")
#: Units and the like: they limit nothing.
UNITS = {"KIB"}
#: Named by no test, and why, by kind. `tuning`: results are the same for any value, only time, traffic and memory
#: within another limit change. `waits`: when something is done hangs on it, not what. The list may
#: only become shorter.
UNTESTED: dict[str, dict[str, set[str]]] = {
    "converter": {
        "tuning: how finely work is cut": {
            "OFFSET_INDEX_INTERVAL_BYTES",
            "READ_GAP_BYTES",
            "STEP_BYTES",
            "ZSTD_LEVEL_DATA",
            "ZSTD_LEVEL_INDEX",
        },
    },
    "iceberg_catalog": {
        "waits: tries and times of calls to a catalog; beyond them a run fails and is made again": {
            "CREATE_ATTEMPTS_MAX",
            "EVOLVE_REFUSALS_MAX",
            "RELOAD_ATTEMPTS_MAX",
            "REST_CONNECT_TIMEOUT_MS",
            "REST_READ_TIMEOUT_MS",
            "SIGNED_RETRIES_MAX",
        },
        "tuning: how finely work is cut": {
            "MANIFESTS_FOLDED_MIN",
            "MANIFEST_ENTRIES_MAX",
            "MANIFEST_SMALL_ENTRIES",
            "METADATA_VERSIONS_KEPT_MAX",
        },
    },
    "rsm_bridge": {
        "waits: how long or how often something is waited for or tried": {
            "AHEAD_PAUSE_SECONDS_MAX",
            "BUCKET_CONNECT_SECONDS",
            "BUCKET_REQUEST_SECONDS",
            "BUCKET_TRIES",
            "CATALOG_AGAIN_SECONDS",
            "DECODE_BURST_SECONDS",
            "DELETE_SECONDS_MAX",
            "EVOLUTION_SECONDS_MAX",
            "FETCH_PATIENCE_SECONDS",
            "FORGET_KAFKA_SECONDS",
            "HEARTBEAT_SECONDS",
            "INDEX_RENEWALS_MAX",
            "LARGE_TURN_CHECK_SECONDS",
            "LEASE_SECONDS",
            "MERGE_COMMITS_MAX",
            "MERGE_SECONDS_MAX",
            "RELIST_SECONDS",
            "RUNS_TO_LAND_MAX",
            "STOP_GRACE_SECONDS",
            "SWAP_RETRY_SECONDS",
        },
        "waits: how long status waits and watches; tests of it set their own patience": {
            "PROJECTION_BEHIND_SECONDS",
            "STATUS_ANSWER_SECONDS",
            "STATUS_BRIDGE_SECONDS",
            "STATUS_COPY_WATCH_SECONDS",
            "STATUS_FETCH_SECONDS",
            "STATUS_HISTORY_SECONDS",
            "STATUS_UNREAD_SECONDS",
            "STATUS_LOST_OBJECTS_MAX",
            "COLUMN_IDS_SWAPS_MAX",
            "STATUS_LEADER_WATCH_SECONDS",
            "STATUS_LOOKS_MAX",
            "STATUS_PUBLISH_WATCH_SECONDS",
            "STATUS_SERVER_WATCH_SECONDS",
            "STATUS_TIMESTAMPS_MAX",
            "STORE_FREE_BYTES_MIN",
        },
        "tuning: how much is done at once, or kept for later": {
            "EVOLUTION_WORKERS",
            "FETCH_FRAME_BYTES",
            "INDEX_READERS",
            "KERNEL_LOADING_SECONDS",
            "PENDING_RUN_MAX",
            "PLANS_PER_RUN_MAX",
            "PUBLISH_RETRY_WORKERS",
            "READ_AHEAD_CHUNKS",
            "UPLOAD_PARTS_IN_FLIGHT_MAX",
            "WHOLE_LISTING_SHARE",
        },
    },
    "repartition": {
        "tuning: how finely work is cut, and texts for display": {
            "ADVISE_ROUNDS",
            "ERROR_CHARS_MAX",
            "FEW_BYTES_MAX",
        },
    },
}


def constants(room: str) -> list[str]:
    """Names that the room's limits.py assigns."""
    names: list[str] = []
    for node in ast.parse((ROOT / room / "limits.py").read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def words(*folders: str, but: Path | None = None) -> set[str]:
    """Every name that stands in the folders' Python files."""
    found: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if path not in (but, Path(__file__)):
                found.update(re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text()))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_every_limit_is_enforced_somewhere(room: str) -> None:
    used = words(*ROOMS, "tierberg", but=ROOT / room / "limits.py")
    assert [name for name in constants(room) if name not in used] == []


def test_why_a_limit_has_no_test_is_of_a_known_kind() -> None:
    kinds = {why.partition(":")[0] for reasons in UNTESTED.values() for why in reasons}
    assert kinds <= {"tuning", "waits", "no limit"}


@pytest.mark.parametrize("room", ROOMS)
def test_every_limit_is_named_by_a_test(room: str) -> None:
    tested = words("tests")
    untested = {name for name in constants(room) if name not in tested} - UNITS
    known = set().union(*UNTESTED[room].values())
    assert untested - known == set(), "a new limit needs a test that names it"
    assert known - untested == set(), "tested by now: take it off the list"
