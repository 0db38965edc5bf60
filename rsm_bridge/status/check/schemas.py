"""What `tierberg config check` asks about schemas: does the registry have the subject, and does its kind fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Protocol, cast

from rsm_bridge.config.topics import Part, SchemaSource, TopicRule
from rsm_bridge.errors import SettingsError
from rsm_bridge.status.check.report import PartCheck, Remark
from rsm_bridge.values.registry.errors import RegistryUnavailableError, SchemaLookupError, SchemaUnknownError
from rsm_bridge.values.registry.protobuf_compiler import protobuf_missing
from rsm_bridge.values.registry.schemas import RegisteredSchema, SchemaKind


class Subjects(Protocol):
    """As much of a registry as is asked."""

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject. Raises SchemaLookupError."""
        ...


class SchemaChecks:
    """Looks at the schemas of topics, one after another; `remarks` are about all of them.

    A registry that is away is said once, and then it is not asked any more.
    """

    def __init__(self, subjects: Subjects | None) -> None:
        """`subjects`: the registry of the settings; None: there is none, or it is not to be asked."""
        self.remarks: list[Remark] = []
        self._subjects = subjects

    def part(self, rule: TopicRule, part: Part, topic: str, *, by_default: bool) -> tuple[PartCheck, list[Remark]]:
        """What becomes of a topic's values or keys.

        Args:
            rule: of the topic.
            part: which of the two.
            topic: its name.
            by_default: no rule matched: nobody has said that there are schemas.
        """
        form, source = rule.format_of(part), rule.source_of(part)
        if source is None:
            return PartCheck(format=form), []
        if source.origin == "inferred":
            return PartCheck(format=form, origin=source.origin), []
        if source.origin == "inline":
            return PartCheck(format=form, origin=source.origin), _inline(source, form, part)
        subject = rule.subject_of(part, topic)
        unknown = PartCheck(format=form, origin=source.origin, subject=subject)
        if self._subjects is None:
            return unknown, []
        try:
            found = self._subjects.latest(subject)
        except SchemaUnknownError as error:
            missing = _missing(source, part, subject, error, by_default=by_default)
            return replace(unknown, answered=True), missing
        except RegistryUnavailableError as error:
            if not error.everybody:
                return unknown, [Remark("error", str(error))]
            self._subjects = None
            self.remarks.append(Remark("error", f"{error}; the schemas of no further topic were looked at"))
            return unknown, []
        except SchemaLookupError as error:
            return replace(unknown, answered=True), [Remark("error", str(error))]
        checked = replace(unknown, answered=True, schema=(found.id, found.kind))
        if form in {"auto", found.kind}:
            return checked, []
        text = f"{part}_format is {form}, and the latest schema of subject {subject} is {found.kind} (id {found.id})"
        if source.origin == "subject":
            return checked, [Remark("error", f"{text}; change one of them")]
        # Each record names its own schema: the subject is where it usually is, not where it must be.
        return checked, [Remark("warning", f"{text}; records of that schema will have no columns")]


def _missing(
    source: SchemaSource, part: Part, subject: str, error: SchemaUnknownError, *, by_default: bool
) -> list[Remark]:
    if source.origin == "subject":
        return [Remark("error", f"{error}; register a schema there, or change {part}_schema.subject")]
    if by_default:
        return []
    text = f"the registry has no subject {subject}; records name their schemas themselves, so that may be right"
    return [Remark("note", text)]


def _inline(source: SchemaSource, form: str, part: Part) -> list[Remark]:
    """What a bridge would say of each record: a schema that has no decoder makes them all dead letters."""
    from converter.values.by_writer import Writer
    from rsm_bridge.values.typed.schemas import ColumnsWaitError, SchemaRule, ValueSchemas

    try:
        text = source.inline_text()
        if form != "protobuf":
            json.loads(text)
        elif (missing := protobuf_missing()) is not None:
            return [Remark("error", missing)]
        rule = SchemaRule(kind=cast(SchemaKind, form), source="inline", text=text, message=source.message or "")
        made = ValueSchemas(rule=rule, registry=None).decoder(Writer())
    except SettingsError as error:
        return [Remark("error", f"{part}_schema: {error}")]
    except (ValueError, RecursionError) as error:
        return [Remark("error", f"{part}_schema: the text is not JSON: {error}")]
    except ColumnsWaitError as error:
        return [Remark("warning", f"{part}_schema: {error}")]
    return [Remark("error", f"{part}_schema: {made}")] if isinstance(made, str) else []
