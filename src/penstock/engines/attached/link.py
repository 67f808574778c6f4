"""A consumer's link to the owner of one partition: over the network, or within this process."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

import msgspec

from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Place
from penstock.client.entries.consumer import EntryConsumer, EntryContext
from penstock.client.entries.sink import Sink
from penstock.client.enums import ConsumerType, InitialPosition, KeySharedMode
from penstock.client.errors import PulsarException
from penstock.client.policies import ConsumerKeySharedPolicy
from penstock.client.session import commands
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType

_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: ConsumerType.Exclusive,
    SubscriptionType.SHARED: ConsumerType.Shared,
    SubscriptionType.FAILOVER: ConsumerType.Failover,
    SubscriptionType.KEY_SHARED: ConsumerType.KeyShared,
}


class Link(Protocol):
    """The owner's consumer of one partition. It delivers to a `LinkSink` as many messages as it has permits for; the last entry
    may overdraw them. After `ended` it delivers nothing. Methods raise PenstockError if they fail."""

    @property
    def permits(self) -> int:
        """Messages that may still come; below zero after an entry that overdrew them."""

    @property
    def due(self) -> int:
        """Messages that were permitted and that the sink does not have yet."""

    async def start(self) -> None:
        """Subscribe."""

    def flow(self, permits: int) -> None:
        """Permit so many more messages."""

    def restart(self) -> None:
        """Take back the permits of messages that are not on their way. `reset` may follow."""

    def start_over(self) -> bool:
        """The log was truncated: as `restart`, and everything that is not acknowledged is redelivered. Acknowledgements that are not
        known to be durable are not given to another owner: they may be of messages that are lost. Whether any do not count."""

    def acknowledge(self, places: Iterable[Place]) -> None:
        """Acknowledge whole entries, durably after `flush`."""

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        """Acknowledge all messages of an entry except those in `open_bits`."""

    def acknowledge_up_to(self, place: Place, open_bits: int = 0) -> None:
        """Acknowledge all entries before `place`, and that entry except the messages in `open_bits`."""

    async def reply(
        self, message_id: MessageId, content: bytes, *, is_error: bool, schema_version: int | None
    ) -> str:
        """Acknowledge a request with the reply to it (PIP-371); returns the value of its `Outcome`. Raises MESSAGE_NOT_FOUND, TOO_LARGE."""

    def redeliver(self, places: Iterable[Place]) -> None:
        """Ask for entries again (Shared and Key_Shared)."""

    def redeliver_all(self) -> None:
        """Ask for all unacknowledged messages again, in order."""

    async def flush(self) -> None:
        """Complete when all acknowledgements are durable; raises if one of them failed."""

    async def seek(self, to: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription after a message (or to it), or to a publish time in ms. `reset` is called."""

    async def unsubscribe(self) -> None:
        """Delete the subscription and close; raises SUBSCRIPTION_SHARED, and stays open, if it has other consumers."""

    async def close(self) -> None:
        """Leave; unacknowledged messages go to other consumers."""


class OwnerLink(Link, Protocol):
    """A link to one owner."""

    def give_unstored_to(self, to: AckSink) -> bool:
        """Once it has ended: give acknowledgements that may not be durable to another link, before that one has permits. False if
        they are no longer known."""


class LinkSink(Sink, Protocol):
    """A `Sink` of any link."""

    def moved(self) -> None:
        """The subscription was moved, by another consumer or an administrator: no earlier message is out any more."""

    def ended(self, error: PenstockError) -> None:
        """Nothing more will come. `Moved`: unless a link is opened to the next owner."""


class Attachment(msgspec.Struct, frozen=True):
    """What a consumer asks the owner of a partition for. `start` counts for a new subscription only."""

    topic: TopicName
    subscription: str
    consumer: str
    options: ConsumerOptions
    start: MessageId


LinkTo = Callable[[Attachment, LinkSink], Awaitable[OwnerLink]]


class Moved(PulsarException, kind=ErrorKind.UNAVAILABLE):
    """The link has ended, and the partition has another owner or will have one.

    The lookup of a network link raises it if the owner is this process: the link cannot connect again, but callers may retry.
    """

    def __init__(self, topic: TopicName | str) -> None:
        super().__init__(f"{topic} moves to another owner: try again")

    @property
    def retriable(self) -> bool:
        return True


def network_link(context: EntryContext, wanted: Attachment, sink: LinkSink) -> EntryConsumer:
    """A link over Pulsar's protocol. It finds a new owner itself, by lookup, each time it connects."""
    options = wanted.options
    return EntryConsumer(
        context,
        _subscription_of(wanted),
        None if options.durable else wanted.start,
        sink=sink,
        inclusive=options.start_inclusive,
        recreates=not wanted.topic.persistent,
    )


def _subscription_of(wanted: Attachment) -> commands.Subscription:
    options = wanted.options
    ranges = list(options.key_ranges)
    return commands.Subscription(
        topic=str(wanted.topic),
        name=wanted.subscription,
        consumer_name=wanted.consumer,
        type=_TYPES[options.type],
        durable=options.durable,
        initial_position=InitialPosition.Earliest if wanted.start == EARLIEST else InitialPosition.Latest,
        read_compacted=options.compacted,
        properties=dict(options.properties),
        key_shared=ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=ranges) if ranges else None,
        priority=options.priority,
        subscription_properties=dict(options.subscription_properties),
    )
