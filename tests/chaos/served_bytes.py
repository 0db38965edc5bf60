"""Every batch that a broker serves from the remote store, compared with the brokers' own files."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.record_batches import Batch
from tests.chaos.true_log import TrueLog
from tests.chaos.verdicts import Verdict


def served_bytes(
    where: str, served: Iterable[Batch], log: TrueLog, span: tuple[int, int]
) -> tuple[Verdict, list[Batch]]:
    """Each batch is the broker's, byte for byte; one that was compressed may have the same records in another form.

    Returns:
        The verdict, and the broker's batches that were served, in order. What the broker's files do not have (a link
        that came too late) is counted as `not linked`, a failure: nothing proves it.
    """
    verdict = Verdict("served bytes", where)
    chosen: list[Batch] = []
    next_offset = span[0]
    for batch in served:
        verdict.looked_at += 1
        if batch.base > next_offset:
            verdict.add("gap", f"{next_offset} to {batch.base - 1}")
        elif batch.last < next_offset:
            verdict.add("doubled", batch.base)
        next_offset = batch.last + 1
        own = log.by_identity.get((batch.base, batch.epoch))
        if own is None:
            verdict.add("not linked", f"{batch.base}, epoch {batch.epoch}")
            continue
        chosen.append(own)
        if batch.raw == own.raw:
            verdict.told["identical"] += 1
        else:
            _other_form(verdict, batch, own)
    return verdict, chosen


def _other_form(verdict: Verdict, batch: Batch, own: Batch) -> None:
    if own.codec == "none":
        verdict.add("other bytes", f"{batch.base}: {len(batch.raw)} bytes, not {len(own.raw)}")
    elif batch.identity != own.identity:
        verdict.add("other header", f"{batch.base}: {batch.identity}, not {own.identity}")
    elif list(batch.records()) != list(own.records()):
        verdict.add("other records", batch.base)
    else:
        verdict.told["same records"] += 1
