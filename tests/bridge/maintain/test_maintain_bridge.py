"""A mass delete under a running bridge: it shows, it is undone beside the bridge, and retention goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tierberg.cli import app


def test_a_mass_delete_is_held_shown_and_undone_while_the_bridge_runs(tmp_path: Path) -> None:
    settings = test_settings(tmp_path, reclaim_grace="10m")
    catalog = open_catalog(embedded_settings(tmp_path))

    def rows() -> int:
        known = catalog.table_exists(("kafka", "orders"))
        return catalog.load_table(("kafka", "orders")).scan().count() if known else 0

    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:

        def held(what: str) -> float | None:
            return bridge.metrics.registry.get_sample_value(f"tierberg_mass_delete_{what}")

        log = LogBuilder().fill(batches=3, records=10)
        first = shim.copied(segment_of(log))
        more = LogBuilder(next_offset=log.next_offset).fill(batches=2, records=10)
        second = shim.copied(replace(segment_of(more), topic_id=first.topic_id))
        eventually(lambda: rows() == 50)
        shim.delete(first)
        shim.delete(second)
        eventually(lambda: rows() == 0)
        eventually(lambda: (held("segments"), held("rows")) == (2, 50))
        done = CliRunner().invoke(app, ["undelete", "orders", "--data-dir", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert rows() == 50
        last = LogBuilder(next_offset=more.next_offset).fill(batches=1, records=10)
        third = shim.copied(replace(segment_of(last), topic_id=first.topic_id))
        eventually(lambda: rows() == 60)
        eventually(lambda: held("segments") == 0)
        shim.delete(third)  # retention goes on: everything below goes with it
        eventually(lambda: rows() == 0)
