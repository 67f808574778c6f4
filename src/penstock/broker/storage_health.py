"""Whether the storage of persistent topics takes writes, as its store reports it.

While it does not, publishes and new producers are refused: a client that may open a producer takes the storage for
healthy, restarts its send timeout, and never gives up. Reads, acknowledgements and what frees room go on.

The first failure and the recovery are logged; refusals between them are counted.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from errno import errorcode
from time import monotonic
from typing import Any, Final, Literal, get_args

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.statistics import Writes

log = logging.getLogger(__name__)

# io: writes or syncs fail; full: the disk, or a quota of its system, has no room; limit: the storage is as large as
# the configuration lets it become, and the disk is well.
Cause = Literal["io", "full", "limit"]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
# Errors of a problem that was logged when it began: code that meets them logs nothing more.
STORAGE_KINDS: Final = frozenset((ErrorKind.STORAGE_FULL, ErrorKind.STORAGE_FAILED))

_REASONS: Final = {"io": "storage_failed", "full": "storage_full", "limit": "size_limit"}


class Problem(msgspec.Struct, frozen=True):
    """Why the storage takes no publishes. `errno`: the system's number, if it is known."""

    cause: Cause
    error: PenstockError
    path: str
    errno: int | None = None

    def new_error(self) -> PenstockError:
        """An error for each caller: a traceback grows with every raise."""
        return PenstockError(self.error.kind, self.error.message)


class StorageFiles(msgspec.Struct, frozen=True):
    """Sizes in bytes of what a store has on its disk; `size_max` 0: as large as the disk."""

    size: int
    size_max: int
    disk_free: int


class StorageHealth:
    """The state of one store. For the loop's thread only; a store without a disk never reports anything."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        self.since: datetime | None = None  # when the problem began
        self.failed_commits: Counter[str] = Counter()  # by cause, since the start
        self.refused = 0  # publishes, since the start
        self.files: Callable[[], StorageFiles] | None = None  # looks at the disk
        self.writes: Writes | None = None  # what the store's writer did, once it runs
        self._began = 0.0
        self._refused_before = 0

    @classmethod
    def of(cls, store: object) -> "StorageHealth":
        """The one that a store reports to; one that stays well for a store that reports nothing."""
        found = getattr(store, "health", None)
        return found if isinstance(found, cls) else cls()

    @property
    def failing(self) -> bool:
        """Whether the disk fails or is full: an operator has to act."""
        return self.problem is not None and self.problem.cause != "limit"

    def check(self, topic: TopicName) -> None:
        """Raise STORAGE_FAILED or STORAGE_FULL unless messages of `topic` can be stored now."""
        if self.problem is not None and topic.persistent:
            raise self.problem.new_error()

    # -- what the store reports

    def failed(self, problem: Problem) -> None:
        """No publishes are taken from now on."""
        before, self.problem = self.problem, problem
        if before is not None and before.cause != "limit":
            return  # the probe found another reason: full instead of failing, or the other way round
        if before is None:
            self.since = datetime.now(UTC)
            self._began = monotonic()
            self._refused_before = self.refused
        log.error(
            "storage takes no publishes" if problem.cause == "limit" else "storage fails",
            extra={
                "cause": problem.cause,
                "reason": problem.error.message,
                "errno": None if problem.errno is None else errorcode.get(problem.errno, str(problem.errno)),
                "path": problem.path,
                "follows": "publishes and new producers are refused until writing succeeds again; it is tried again "
                "by itself. Reading goes on, and so do acknowledgements and deletes where they can be written",
            },
        )

    def recovered(self) -> None:
        """Publishes are taken again."""
        if self.problem is None:
            return
        log.warning(
            "storage recovered",
            extra={
                "cause": self.problem.cause,
                "path": self.problem.path,
                "seconds": round(monotonic() - self._began, 3),
                "refused": self.refused - self._refused_before,
            },
        )
        self.problem = self.since = None

    def commit_failed(self, cause: str) -> None:
        """Count a failed commit; causes other than problems are `damaged` and `other`."""
        self.failed_commits[cause] += 1
        if cause == "damaged" and self.failed_commits[cause] == 1:
            log.error(
                "storage is damaged", extra={"follows": "what is damaged cannot be read; see penstock check"}
            )

    def refuse(self, count: int) -> None:
        """Count publishes that were refused, or failed."""
        self.refused += count

    # -- for programs

    def readiness(self) -> dict[str, Any]:
        """The problem, as the readiness endpoint shows it; empty while all is well."""
        if self.problem is None or self.since is None:
            return {}
        error = self.problem.error
        return {
            "error_code": error.kind.codes.code,
            "reason": _REASONS[self.problem.cause],
            "message": error.message,
            "since": self.since.isoformat(timespec="milliseconds"),
        }
