"""Bodies and answers of consumer instances, for OpenAPI and for answering."""

import msgspec

DEFAULT_WAIT_MS = 1000  # Confluent's consumer.request.timeout.ms


class CreateInstance(
    msgspec.Struct,
    rename={
        "reset": "auto.offset.reset",
        "commit": "auto.commit.enable",
        "wait": "consumer.request.timeout.ms",
        "least": "fetch.min.bytes",
    },
):
    """A new consumer instance. Other fields are ignored. A fetch waits for `fetch.min.bytes`; -1: for any record."""

    name: str | None = None
    format: str = "binary"
    reset: str = "latest"
    commit: str = "true"
    wait: int = DEFAULT_WAIT_MS
    least: int = -1


class InstanceAnswer(msgspec.Struct):
    """An instance, and where it is asked for."""

    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct):
    """Topics by name, or those whose names match a regular expression."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


class Topics(msgspec.Struct):
    """The topics that an instance subscribes to."""

    topics: list[str]


class PartitionName(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    topic: str
    partition: int


class Partitions(msgspec.Struct):
    """Partitions."""

    partitions: list[PartitionName]


class OffsetOf(msgspec.Struct):
    """An offset in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class TimeOf(msgspec.Struct):
    """A time (ISO 8601) in a partition."""

    topic: str
    partition: int
    timestamp: str


class Positions(msgspec.Struct):
    """Positions to go on at."""

    offsets: list[OffsetOf] = []
    timestamps: list[TimeOf] = []


class Offsets(msgspec.Struct):
    """Offsets of records that are done; none: of all that were fetched."""

    offsets: list[OffsetOf] = []


class CommittedOffset(msgspec.Struct):
    """The offset at which a group goes on."""

    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedOffsets(msgspec.Struct):
    """The offsets of a group, without partitions in which it has committed nothing."""

    offsets: list[CommittedOffset]
