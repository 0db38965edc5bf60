"""A table of a copy as maintenance sees it: the copy's own, or that of its dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repartition.job import LETTERS, CopyJob
from repartition.target import load_copy, quoted, staged
from repartition.writing import append


@dataclass(frozen=True, slots=True)
class KeptTable:
    """One of them.

    Attributes:
        job: the copy's.
        name: namespaces first.
        kind: as the table's stamp says.
        sort_by: what compaction sorts by.
        called: what it is called before what a chore says; empty: nothing.
    """

    job: CopyJob
    name: tuple[str, ...]
    kind: str
    sort_by: tuple[str, ...] = ()
    called: str = ""

    @property
    def quoted(self) -> str:
        """As a table in Spark's SQL."""
        return quoted(self.job.target.spark_name, *self.name)

    def load(self) -> Any:
        """PyIceberg's table; None: there is none.

        Raises:
            RepartitionError: `not_ours`.
        """
        return load_copy(self.job.target.catalog, self.name, self.job.source.owner, self.kind)

    def sql(self, text: str) -> None:
        """One statement."""
        self.job.session.sql(text)

    def call(self, procedure: str, arguments: str) -> Any:
        """The one row that a procedure of the catalog answers for this table."""
        return self.call_rows(procedure, arguments)[0]

    def call_rows(self, procedure: str, arguments: str) -> list[Any]:
        """All rows of that."""
        # With the catalog's name: else Spark takes a namespace for one first, and warns of it with a stack trace.
        system = quoted(self.job.target.spark_name)
        found = self.job.session.sql(f"CALL {system}.system.{procedure}(table => '{self.quoted}', {arguments})")
        rows: list[Any] = found.collect()
        return rows

    def record_again(self) -> None:
        """Writes the frontier to the head, so that the snapshot which said it may expire with what it names.

        Raises:
            RepartitionError: `raced` if a run has published meanwhile: its frontier is further.
        """
        job, target = self.job, self.job.target
        found = job.recorded(job.source.owner, self.name, self.kind)
        with staged(job.session, target.spark_name, self.name, found.snapshot_id) as (branch, publish):
            append(job.session.table(branch).where("false"), branch, found.frontier)
            publish()
        job.recorded(job.source.owner, self.name, self.kind)


def kept_tables(job: CopyJob) -> tuple[KeptTable, KeptTable]:
    """Of one copy; either may not be there yet."""
    return (
        KeptTable(job, job.name, job.rule.mode, job.rule.sort_by),
        KeptTable(job, job.letters_name, LETTERS, called="dead letters: "),
    )
