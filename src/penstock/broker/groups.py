"""Consumer groups as Kafka's clients know them: members that share partitions, read by offset, and commit offsets for the group.

A cluster that has such groups offers them as `Broker.groups`. Before any other engine a group is a subscription.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.headers import Headers
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A partition of a topic; 0 of a topic without partitions. `topic` is the whole topic's name."""

    topic: TopicName
    partition: int


class Edge(Enum):
    """An end of a partition."""

    BEGINNING = "earliest"
    END = "latest"


class Since(msgspec.Struct, frozen=True):
    """The first record with a timestamp (ms since the epoch) of at least this; the end if there is none."""

    timestamp: int


Position = int | Edge | Since


class Committed(msgspec.Struct, frozen=True):
    """The offset at which a group goes on in a partition, with the text committed with it."""

    offset: int
    metadata: str = ""


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member takes part. `start` counts in partitions in which the group has committed nothing. With `auto_commit`, `fetch` and
    `close` commit what earlier fetches returned."""

    name: str
    start: Edge = Edge.END
    auto_commit: bool = True
    client: ClientInfo = UNKNOWN_CLIENT


class GroupRecord(msgspec.Struct, gc=False, kw_only=True):
    """A record as it is stored. `schema_version` is the topic's version of the schema of its value, None if the log names none.
    `key_frame` and `value_frame` are the numbers of bytes in front of key and value that name their schemas to a schema registry.

    `error` says why a record cannot be opened; then it has neither key nor value.
    """

    topic: TopicName
    partition: int
    offset: int
    timestamp: int  # ms since the epoch
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    schema_version: int | None = None
    key_frame: int = 0
    value_frame: int = 0
    error: str | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum([len(name) + len(value or b"") for name, value in self.headers])
        return size


class GroupMember(Protocol):
    """One member of a group; its calls come one after the other. A subscription and an assignment replace the one before.

    Partitions without a position begin at the group's committed offset, else at `GroupOptions.start`.
    """

    owner: str | None  # the role it acts for; None if authentication is off
    proxy: str | None  # the role that made it for its owner

    @property
    def closed(self) -> bool: ...
    @property
    def close_reason(self) -> PenstockError | None:
        """Why it was closed by others."""

    @property
    def topics(self) -> Sequence[TopicName]:
        """The topics it subscribes to, sorted; of a pattern those that matched at the last fetch."""

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        """The partitions it has now, sorted."""

    async def subscribe(self, topics: Sequence[TopicName]) -> None:
        """Share the partitions of these topics with the other members. A topic that does not exist is not an error.

        Raises SUBSCRIPTION_BUSY, CONSUMER_BUSY, FORBIDDEN and what the cluster refuses.
        """

    async def subscribe_pattern(self, pattern: str, allowed: Callable[[TopicName], bool]) -> None:
        """The same for every topic of `public/default` whose local name matches, also those that come later; of these, `allowed`
        says which the caller may consume. Raises BAD_PARAMETER for a pattern that cannot be read."""

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing. Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND."""

    async def unsubscribe(self) -> None:
        """Give up subscription and assignment."""

    async def seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Go on at these positions, which are of partitions of `assignment`; commits nothing."""

    async def fetch(self, wait_ms: int, bytes_max: int, bytes_min: int = 0) -> list[GroupRecord]:
        """Return the records that follow, in the order of each partition, and move the positions behind them.

        Waits up to `wait_ms` for partitions and for a first record, and returns once there are `bytes_min` of keys, values and headers, or as
        many records as one fetch returns: up to `bytes_max`, but at least one. A fetch that is cancelled moves nothing. Raises why the
        member was closed.
        """

    async def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        """Commit offsets for the group, durably; None: the positions behind fetched records."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """What the group has committed, without partitions in which it has committed nothing."""

    async def close(self) -> None:
        """Leave the group."""


class Groups(Protocol):
    """The consumer groups of a cluster."""

    async def join(self, group: str, options: GroupOptions) -> GroupMember:
        """A new member of a group, which has no partitions. Raises BAD_PARAMETER for a name that the cluster refuses, FORBIDDEN."""
