"""What is known of a writer of staged batches before a cluster: whose it is, and what it committed last."""

import msgspec

from penstock.model.stage import Commit, Target, Targets, Writer


class Claimed(msgspec.Struct, frozen=True, tag=True):
    """Whose the writer is."""

    owner: str
    origin: str
    at: int


class KnownWriter:
    """A writer, with its last commit to each set of topics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.claimed: Claimed | None = None
        self.commits: dict[Targets, Commit] = {}

    @property
    def writer(self) -> Writer:
        """Who it is."""
        claimed = self.claimed or Claimed("", "", 0)
        at = max([claimed.at, *(commit.at for commit in self.commits.values())])
        keep = any(commit.keep for commit in self.commits.values())
        return Writer(self.name, claimed.owner, claimed.origin, at, keep)

    @property
    def targets(self) -> list[Target]:
        """What it committed last, for each set of topics."""
        return [commit.target for commit in self.commits.values()]
