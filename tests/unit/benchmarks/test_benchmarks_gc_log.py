"""The heap is read out of what a real Java machine writes."""

from pathlib import Path

from benchmarks.gc_log import heap_after_collections

LOG = """[0.007s] Using G1
[1.201s] GC(0) Pause Young (Normal) (G1 Evacuation Pause)
[1.204s] GC(0) Eden regions: 23->0(21)
[1.204s] GC(0) Metaspace: 21331K(21824K)->21331K(21824K) NonClass: 18760K(19008K)->18760K(19008K)
[1.204s] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 23M->6M(1024M) 3.117ms
[2.512s] GC(1) Pause Young (Concurrent Start) (G1 Humongous Allocation) 612M->87M(1024M) 4.321ms
[2.600s] GC(2) Concurrent Mark Cycle 88.1ms
[2.601s] GC(2) Pause Remark 101M->99M(1024M) 1.002ms
[2.602s] GC(2) Pause Cleanup 100M->100M(1024M) 0.020ms
"""


def test_every_pause_gives_the_heap_after_it(tmp_path: Path) -> None:
    log = tmp_path / "gc.log"
    log.write_text(LOG)
    assert heap_after_collections(log, 0) == [6.0, 87.0, 99.0, 100.0]


def test_only_what_was_written_since_counts(tmp_path: Path) -> None:
    log = tmp_path / "gc.log"
    log.write_text(LOG)
    assert heap_after_collections(log, LOG.index("[2.512s]")) == [87.0, 99.0, 100.0]
    assert heap_after_collections(log, len(LOG)) == []
