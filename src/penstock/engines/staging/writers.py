"""The writers of staged batches: whose they are, and what they committed last."""

import msgspec

from penstock.broker.staging import Caller
from penstock.model.stage import Commit, Target, Targets, Writer


class Claimed(msgspec.Struct, frozen=True, tag=True):
    """Whose the writer is, as it is stored in a cluster."""

    owner: str
    origin: str
    at: int


class KnownWriter:
    """A writer of a cluster, with its last commit to each set of topics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.claimed: Claimed | None = None
        self.commits: dict[Targets, Commit] = {}

    @property
    def exists(self) -> bool:
        """Whether anything is known of it."""
        return self.claimed is not None or bool(self.commits)

    @property
    def writer(self) -> Writer:
        """Its identity."""
        claimed = self.claimed or Claimed("", "", 0)
        at = max([claimed.at, *(commit.at for commit in self.commits.values())])
        keep = any(commit.keep for commit in self.commits.values())
        return Writer(self.name, claimed.owner, claimed.origin, at, keep)

    @property
    def targets(self) -> list[Target]:
        """What it committed last, for each set of topics."""
        return [commit.target for commit in self.commits.values()]


def claimed_by(caller: Caller, name: str, known: Writer | None, now: int, touch_ms: int) -> Writer:
    """A writer as it is once the caller uses it: `known` itself if that changes nothing. Raises FORBIDDEN for another role's."""
    if known is None:
        return Writer(name, caller.role, caller.origin, now)
    caller.check(known)
    if caller.role and not known.owner:
        return msgspec.structs.replace(known, owner=caller.role, origin=caller.origin, at=now)
    if touch_ms and now - known.at >= touch_ms:
        return msgspec.structs.replace(known, at=now)
    return known
