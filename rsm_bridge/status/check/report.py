"""What `tierberg config check` found: per topic what the rules make of it, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rsm_bridge.config.projections import ProjectionMode
from rsm_bridge.config.topics import Incompatible, RuleFormat, SchemaOrigin

#: `error`: it will not work as written; `warning`: it may not be what was meant; `note`: worth knowing.
RemarkLevel = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence, with what to do."""

    level: RemarkLevel
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCheck:
    """Values or keys of a topic.

    Attributes:
        format: of the rule.
        origin: where schemas come from; None for formats without.
        subject: the one that was looked up in the registry; None when none was.
        answered: whether the registry said something about it.
        schema: (id, kind) of its latest version; None when there is none that can be used.
    """

    format: RuleFormat
    origin: SchemaOrigin | None = None
    subject: str | None = None
    answered: bool = False
    schema: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class ProjectionCheck:
    """A projection that a topic's rule declares: name of its catalog, namespace and name of its table, its mode."""

    catalog: str
    table: str
    mode: ProjectionMode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCheck:
    """One topic.

    Attributes:
        topic: its name.
        tiered: whether Kafka gives its segments to us; None: Kafka was not asked.
        why_not: the cause's code as `tierberg status` has it, and its meaning, when it does not.
        rule: the place of the rule in `topics`, from 0; None: none matched, and the default holds.
        pattern: that rule's.
        mode: `table` or `verbatim`.
        value, key: what becomes of them.
        table: namespace and name; None: it has no table.
        table_retention: the word, or seconds.
        incompatible, decode_budget: as in the rule.
        projections: as the rule declares them.
        remarks: about this topic.
    """

    topic: str
    tiered: bool | None
    why_not: tuple[str, str] | None
    rule: int | None
    pattern: str | None
    mode: str
    value: PartCheck
    key: PartCheck
    table: str | None
    table_retention: str | float
    incompatible: Incompatible
    decode_budget: float
    projections: tuple[ProjectionCheck, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """All topics, by name, and remarks about none of them alone."""

    generation: int
    remarks: tuple[Remark, ...]
    topics: tuple[TopicCheck, ...]

    def count(self, level: RemarkLevel) -> int:
        """Remarks of this level, of topics too."""
        return sum(remark.level == level for remark in self._all())

    @property
    def wrong(self) -> bool:
        """Whether there is an error."""
        return self.count("error") > 0

    def _all(self) -> Iterable[Remark]:
        yield from self.remarks
        for topic in self.topics:
            yield from topic.remarks
