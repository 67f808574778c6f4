"""A durable subscription of one partition, as this process has it: dealt out here while the group gives the partition to this process.

While another process has it, consumers stay attached and get nothing, and what they answer is refused: it was given up as the partition
went, and the other process goes on from the cursor.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from penstock.broker.delivery import Outcome
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.receiver import Receiver
from penstock.engines.subscription.selection import Keys
from penstock.engines.subscription.store import CursorWriter
from penstock.engines.subscription.subscription import Host
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.runtime.tasks import Tasks

from .cursors import Cursor
from .driver.groups import Committed
from .driver.record import At
from .topic import KafkaTopic

PROPERTIES: Final = "subscription-properties"


class Membership(Protocol):
    """The groups of this process."""

    @property
    def stalled(self) -> bool:
        """Whether this process stood still a moment ago: its groups are about to `doubt`."""

    def emptied(self, source: "GroupSubscription") -> None:
        """The last consumer left."""

    async def stand(self, sources: Sequence["GroupSubscription"]) -> None:
        """Learn where logs end, and have subscriptions that another process has, or none, stand where their commits say."""

    async def move(self, source: "GroupSubscription", offset: int, *, skip: bool) -> None:
        """Have a subscription whose partition is not here go on at an offset, or (`skip`) count everything below as acknowledged."""


class GroupSubscription(Subscription):
    """`broker.Subscription`. `Group` says when the partition comes and goes; `saved` is what was committed last."""

    def __init__(
        self,
        topic: KafkaTopic,
        name: str,
        *,
        keys: Keys,
        tasks: Tasks,
        cursors: CursorWriter,
        host: Host,
        membership: Membership,
        properties: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            topic,
            name,
            cursor=OffsetSet(0),
            durable=True,
            keys=keys,
            tasks=tasks,
            cursors=cursors,
            compaction=Compaction(),
            host=host,
            properties=properties,
        )
        self.suspended = True  # another process has the partition, or none yet
        self.doubted = False  # whether this process may have lost the partition while it stood still
        self.at: At = (topic.place.topic, topic.place.partition)
        self.acks_left_out = 0  # of the last commit
        self.taking = False  # the cursor is being read: deliveries begin soon
        self.saved: Committed | None = None
        self.commits = False  # whether what the cursor says is to be committed here
        self._lost: PenstockError | None = None  # why what was acknowledged was not committed
        self._skipped = -1  # everything below is to be counted as acknowledged where the partition is
        self._log = topic
        self._membership = membership

    @property
    def active(self) -> Receiver | None:
        return None if self.suspended else super().active

    @property
    def halted(self) -> bool:
        return self.suspended or self.doubted or self._membership.stalled

    @property
    def idle(self) -> bool:
        return super().idle and not self.taking

    @property
    def waiting(self) -> bool:
        """Whether consumers here wait for the partition, which another process has, or none yet."""
        return self.suspended and bool(self.consumers)

    def check_held(self) -> None:
        if self.waiting:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"another process has {self.topic.name} of subscription {self.name} now: its messages come again there",
            )

    # -- the partition comes and goes

    def take_over(self, cursor: Cursor, saved: Committed | None) -> None:
        """The partition is this process's: go on from the cursor."""
        self.load(cursor, saved)
        self.suspended = self.doubted = False
        self.commits = True
        self._log.followers.add(self.wake)
        self.wake()
        self._tell_active(super().active, True)
        if saved is None or cursor.type is not self.type:
            self.host.moved(self)

    def give_up(self) -> None:
        """The partition is another's: nothing is out any more."""
        if self.suspended:
            return
        active = super().active
        self.suspended, self.doubted = True, False
        self._log.followers.discard(self.wake)
        self._restart()
        self._tell_active(active, False)

    def _tell_active(self, consumer: Receiver | None, active: bool) -> None:
        if consumer is not None and consumer.active_changed is not None:
            consumer.active_changed(self, active)

    def load(self, cursor: Cursor, saved: Committed | None) -> None:
        """Stand where the cursor does."""
        self._restart()
        self.cursor.reset(max(cursor.mark, self.topic.first_offset))
        for first, last in cursor.ranges:
            self.cursor.add_range(first, last + 1)
        self.saved = saved
        self.commits = not self.consumers
        if self.type is None:
            self.type = cursor.type

    # -- properties, which are documents: a commit has no room for them

    async def set_properties(self, properties: dict[str, str]) -> None:
        document = msgspec.json.encode(properties) if properties else None
        await self._log.documents.save_meta([(PROPERTIES, self._key, document)])
        self.properties = properties

    async def read_properties(self) -> None:
        """Learn the properties that are stored."""
        document = (await self._log.documents.load_meta(PROPERTIES)).get(self._key)
        self.properties = {}
        if document is not None:
            self._log.documents.reader.read(PROPERTIES, self._key, document, self._learn_properties)

    def _learn_properties(self, key: str, document: bytes | None) -> None:
        self.properties = msgspec.json.decode(document or b"", type=dict[str, str])

    @property
    def _key(self) -> str:
        return f"{self.at[0]}/{self.name}"

    # -- answers and administration

    async def move(self, offset: int) -> None:
        if self.suspended or not self.consumers:
            await self._membership.move(self, offset, skip=False)
        else:
            await super().move(offset)

    def skip(self, offset: int) -> None:
        if self.suspended or not self.consumers:
            self._skipped = max(self._skipped, offset)  # `flush` does it
        else:
            super().skip(offset)

    async def move_here(self, offset: int, *, skip: bool) -> None:
        """`move` or `skip` by this process, durably; raises SUBSCRIPTION_BUSY where the group has other members, and UNAVAILABLE
        where the partition went meanwhile."""
        if skip:
            super().skip(offset)
            await super().flush()
        else:
            await super().move(offset)
        stored = -1 if self.saved is None else self.saved.offset
        moved = stored >= min(offset, self.topic.next_offset) if skip else stored == offset
        if not self.commits or not (moved or self.consumers):  # what consumers acknowledge moves it on
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self.topic.name} went to another process meanwhile")

    def check_committable(self) -> None:
        """Raise SUBSCRIPTION_BUSY where another process has the partition."""
        if self.waiting:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY,
                f"another process has {self.topic.name} of subscription {self.name} now",
            )

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        owner: str | None,
        is_error: bool,
        schema_version: int | None,
    ) -> Outcome:
        self.check_held()
        return await super().reply(
            message_id, content, owner=owner, is_error=is_error, schema_version=schema_version
        )

    def trimmed(self, first_offset: int) -> None:
        if not self.suspended:
            super().trimmed(first_offset)

    def lose(self, error: PenstockError) -> None:
        """What was acknowledged is not committed and never will be: who asks next, for each consumer, gets this error."""
        self._lost = error
        for consumer in self.consumers:
            consumer.lost = error

    async def flush(self) -> None:
        if self._skipped >= 0:
            skipped, self._skipped = self._skipped, -1
            await self._membership.move(self, skipped, skip=True)
        await super().flush()
        if self._lost is not None:
            error, self._lost = self._lost, None
            raise error

    async def refresh(self) -> None:
        if self.suspended:
            await self._membership.stand((self,))
        else:
            await self.topic.refresh()

    def remove(self, consumer: Receiver) -> None:
        super().remove(consumer)
        if not self.consumers:
            self._membership.emptied(self)

    def close(self) -> None:
        self._log.followers.discard(self.wake)
        super().close()
