"""Which projections a job keeps, while topics come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_catalog.connect.redaction import hide
from iceberg_catalog.tables.names import Owner
from repartition.errors import first_line
from repartition.jobs.metrics import ProjectionMetrics
from repartition.jobs.rounds import Tended
from repartition.maintain.due import Budget
from repartition.run.run import ProjectionJob
from repartition.run.source import Source, find_sources
from repartition.spark.targets import Target
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.projections.hold import declared_projections

#: The topic, its own table, and catalog and table of the projection.
_Key = tuple[Owner, tuple[str, ...], str, str]


@dataclass(slots=True, kw_only=True)
class Following:
    """The declared projections of topics, with what each has from round to round.

    Attributes:
        backend: store and catalog of the topics.
        session: Spark's.
        targets: by catalog, of all projections that can come.
        max_bytes, repair, replay: as ProjectionJob.
        maintenance: share of the running time.
        metrics: has lines of the projections.
        say: told of projections that come and go, after the first.
    """

    backend: Backend
    session: Any
    targets: Mapping[str, Target]
    max_bytes: int | None
    repair: bool
    replay: bool
    maintenance: float
    metrics: ProjectionMetrics
    say: Callable[[str], None]
    _tended: dict[_Key, Tended] = field(default_factory=dict, init=False)

    @property
    def projections(self) -> list[Tended]:
        """Those there are now."""
        return list(self._tended.values())

    def take(self, sources: Iterable[Source]) -> None:
        """Has the projections of these topics and no others; those it has had go on as they are."""
        before, now = self._tended, dict[_Key, Tended]()
        for source in sources:
            for projection in declared_projections(self.backend.settings, source.owner.topic, source.name[-1]):
                key = (source.owner, source.name, projection.catalog, projection.table)
                target, own = (
                    self.targets[projection.catalog],
                    self.targets[self.backend.settings.catalog.name].spark_name,
                )
                now[key] = before.get(key) or Tended(
                    ProjectionJob(
                        session=self.session,
                        source=source.own(),
                        source_catalog=own,
                        projection=projection,
                        target=target,
                        max_bytes=self.max_bytes,
                        repair=self.repair,
                        replay=self.replay,
                    ),
                    Budget(self.maintenance),
                )
        self._tended = now
        names = {tended.name for tended in now.values()}
        self.metrics.expect(names)
        self.metrics.forget(tended.name for tended in before.values() if tended.name not in names)

    def look(self) -> list[Tended]:
        """The projections of the topics that have a table now. Where those are not told, those that are known go on."""
        before = self._tended
        try:
            self.take(find_sources(self.backend))
        except Exception as error:  # noqa: BLE001 - whatever a catalog's client raises: there is another round
            self.say(f"topics cannot be looked for, the next round tries again: {hide(first_line(error))}")
            return self.projections
        self._tell(self._tended, before, "has come, and its projection is kept from now on")
        self._tell(before, self._tended, "has no table any more, and its projection stays as it is")
        return self.projections

    def _tell(self, those: Mapping[_Key, Tended], without: Mapping[_Key, Tended], said: str) -> None:
        for key, tended in those.items():
            if key not in without:
                self.say(f"{tended.name.table}: topic {tended.name.topic} {said}")
