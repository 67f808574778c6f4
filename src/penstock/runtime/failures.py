"""Ongoing failures of background work that is retried or skipped, and whose errors no caller receives.

Each has a kind and a subject. It is logged once when it begins and once when it ends, however often it repeats; in
between it is counted, and listed for operators.
"""

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

from .clock import Clock

log = logging.getLogger(__name__)

ONGOING_MAX: Final = 1000  # listed failures; further ones are only counted


class FailureKind(StrEnum):
    """The kind of failing work. The values are metric labels: keep them few."""

    DEAD_LETTER = "dead_letter"  # subject: topic and subscription
    SCHEMA = "schema"  # subject: topic
    READ = "read"  # subject: topic and subscription
    DOCUMENT = "document"  # subject: kind and key of the document, or the topic that holds them all


# The log event when a failure begins, the one when it ends, and what happens in between.
_TEXTS: Final = {
    FailureKind.DEAD_LETTER: (
        "dead letters cannot be stored",
        "dead letters are stored again",
        "they wait unacknowledged and are retried; other messages are delivered",
    ),
    FailureKind.SCHEMA: (
        "a schema cannot be fetched",
        "the schema was fetched",
        "it is retried; messages with other schemas are delivered",
    ),
    FailureKind.READ: (
        "messages cannot be read",
        "messages can be read again",
        "it is retried; other topics and subscriptions are not affected",
    ),
    FailureKind.DOCUMENT: (
        "a stored document cannot be read",
        "the document can be read again",
        "it is skipped; all others are read",
    ),
}


class Failure(msgspec.Struct):
    """One ongoing failure. `message` is the reason of the last attempt, `count` the failed attempts since `since_ms`
    (ms since the epoch)."""

    kind: FailureKind
    subject: str
    message: str
    since_ms: int
    count: int = 1


class Failures:
    """The failures of one process. For the loop's thread only."""

    def __init__(self, clock: Clock, ongoing_max: int = ONGOING_MAX) -> None:
        self.total: Counter[FailureKind] = Counter()  # failed attempts by kind, since the start
        self._clock = clock
        self._max = ongoing_max
        self._ongoing: dict[tuple[FailureKind, str], Failure] = {}
        self._full = False  # whether failures were omitted from the list since it was last empty

    def failed(self, kind: FailureKind, subject: str, message: str, attempts: int = 1) -> None:
        """Count failed attempts; the first of a kind and subject is logged."""
        self.total[kind] += attempts
        found = self._ongoing.get((kind, subject))
        if found is not None:
            found.message = message
            found.count += attempts
            return
        if len(self._ongoing) >= self._max:
            if not self._full:
                self._full = True
                log.warning("too many failures to list", extra={"kind": kind.value, "listed": self._max})
            return
        self._ongoing[kind, subject] = Failure(kind, subject, message, self._clock.now_ms(), attempts)
        begins, _, follows = _TEXTS[kind]
        log.warning(begins, extra={"subject": subject, "reason": message, "follows": follows})

    def recovered(self, kind: FailureKind, subject: str) -> None:
        """End a failure because its work succeeded; logged if there was one."""
        found = self._end(kind, subject)
        if found is not None:
            seconds = max(0, self._clock.now_ms() - found.since_ms) / 1000
            extra = {"subject": subject, "seconds": seconds, "attempts": found.count}
            log.warning(_TEXTS[kind][1], extra=extra)

    def dropped(self, kind: FailureKind, subject: str) -> None:
        """End a failure because its subject is gone, without logging a recovery."""
        self._end(kind, subject)

    def _end(self, kind: FailureKind, subject: str) -> Failure | None:
        found = self._ongoing.pop((kind, subject), None)
        self._full = self._full and bool(self._ongoing)
        return found

    def find(self, kind: FailureKind, subject: str) -> Failure | None:
        """The ongoing failure, or None."""
        return self._ongoing.get((kind, subject))

    @property
    def ongoing(self) -> list[Failure]:
        """All ongoing failures, the oldest first."""
        return list(self._ongoing.values())

    def counts(self) -> dict[FailureKind, int]:
        """The number of ongoing failures by kind, with 0 for those without."""
        found = Counter(kind for kind, _ in self._ongoing)
        return {kind: found[kind] for kind in FailureKind}
