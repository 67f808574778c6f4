"""Levels and modes of a registry: its own, its contexts', and those of subjects."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.model.confluent import ConfluentError
from penstock.model.subjects import (
    BAD_LEVEL,
    BAD_MODE,
    BAD_SUBJECT,
    CONTEXT,
    LEVEL_NOT_SET,
    MODE_NOT_SET,
    NO_SCHEMA,
    NOT_PERMITTED,
    SUBJECT_NOT_FOUND,
    Level,
    Mode,
    context_of,
)

from .changes import Changes
from .subjects import Subjects, config_record, mode_record

SUBJECT_MAX: Final = 1000  # characters
LEVEL: Final = "compatibilityLevel"


class Settings:
    """Reads and changes levels and modes. `of_topic` is the level of a subject's topic."""

    def __init__(self, subjects: Subjects, changes: Changes, of_topic: Callable[[str], Level | None]) -> None:
        self._subjects = subjects
        self._changes = changes
        self._of_topic = of_topic

    def level(self, subject: str) -> Level:
        """The level that counts: the subject's own, that of its topic, its context's, or the global one."""
        own = (self._subjects.config(subject) or {}).get(LEVEL)
        return (self._of_topic(subject) if own is None else None) or self._subjects.level(subject)

    def config(self, subject: str | None, *, default: bool = False) -> dict[str, Any]:
        """The configuration of a subject, or the global one. Raises LEVEL_NOT_SET unless `default`."""
        found = self._subjects.config(subject)
        if found is None and subject is not None and not default:
            raise ConfluentError(
                LEVEL_NOT_SET, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        level = {LEVEL: self.level(subject or "").value}
        return {**level, **{name: value for name, value in (found or {}).items() if name != "subject"}}

    async def set_config(self, subject: str | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Change the configuration of a subject, or the global one; returns what was asked for. Raises BAD_LEVEL."""
        if subject is not None:
            check_subject(subject)
        kept = ("compatibility", LEVEL, "subject")
        changed = {name: value for name, value in wanted.items() if name not in kept and value is not None}
        if not isinstance(changed.get("normalize", False), bool):
            raise ConfluentError(NO_SCHEMA, "normalize is true or false")
        if wanted.get("compatibility") is not None:
            try:
                changed[LEVEL] = Level(str(wanted["compatibility"]).upper()).value
            except ValueError:
                raise ConfluentError(
                    BAD_LEVEL,
                    "Invalid compatibility level. Valid values are none, backward, forward, full,"
                    " backward_transitive, forward_transitive, and full_transitive",
                ) from None
        if not changed:
            return {}

        async def change() -> None:
            await self._changes.write(
                [config_record(subject, {**(self._subjects.config(subject) or {}), **changed})]
            )

        await self._changes.make(change)
        return {("compatibility" if name == LEVEL else name): value for name, value in changed.items()}

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Take a configuration away; returns what it was. Raises SUBJECT_NOT_FOUND if a subject has none."""

        async def change() -> dict[str, Any]:
            if subject is not None and self._subjects.config(subject) is None:
                raise not_found(subject)
            before = self.config(subject)
            if self._subjects.config(subject) is not None:
                await self._changes.write([config_record(subject, None)])
            return before

        return await self._changes.make(change)

    def mode(self, subject: str | None, *, default: bool = False) -> Mode:
        """The mode of a subject, or the global one. Raises MODE_NOT_SET unless `default`."""
        found = self._subjects.own_mode(subject)
        if found is None and subject is not None and not default:
            raise ConfluentError(
                MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return self._subjects.mode(subject or "") if found is None else found

    async def set_mode(self, subject: str | None, wanted: str, *, force: bool = False) -> Mode:
        """Raises BAD_MODE, NOT_PERMITTED."""
        try:
            mode = Mode(wanted.upper())
        except ValueError:
            valid = ", ".join(each.value.lower() for each in Mode)
            raise ConfluentError(BAD_MODE, f"Invalid mode. Valid values are {valid}") from None
        if subject is not None:
            check_subject(subject)

        async def change() -> Mode:
            used = (
                [one for one in self._subjects.names() if context_of(one) == CONTEXT]
                if subject is None
                else list(self._subjects.versions(subject))
            )
            if mode is Mode.IMPORT and used and not force:
                where = "there are schemas" if subject is None else f"subject {subject} has versions"
                raise ConfluentError(NOT_PERMITTED, f"Cannot import since {where}")
            await self._changes.write([mode_record(subject, mode)])
            return mode

        return await self._changes.make(change)

    async def delete_mode(self, subject: str | None) -> Mode:
        """Take a mode away; returns what it was. Raises SUBJECT_NOT_FOUND if a subject has none."""

        async def change() -> Mode:
            before = self._subjects.own_mode(subject)
            if before is None and subject is not None:
                raise not_found(subject)
            await self._changes.write([mode_record(subject, None)])
            return before or Mode.READWRITE

        return await self._changes.make(change)


def not_found(subject: str) -> ConfluentError:
    """The error of a subject that is not there."""
    return ConfluentError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def check_subject(subject: str) -> None:
    """Raise BAD_SUBJECT for a name that no subject can have."""
    bad = not subject or len(subject) > SUBJECT_MAX or any(ord(each) < 32 for each in subject)
    if bad or subject in ("__GLOBAL", "__EMPTY"):
        raise ConfluentError(BAD_SUBJECT, f"The specified subject '{subject[:80]}' is not a valid subject.")
