"""Acknowledgements of messages that other consumers of the subscription have."""

from collections.abc import Sequence
from typing import Final

from penstock.client.entries.arrived import Place
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId

from .link import Link, Moved
from .subscription import Subscription
from .unconfirmed import Unconfirmed

MEETING_MAX: Final = 10_000  # entries
LINKS_MAX: Final = 1000  # of other consumers whose acknowledgements are not flushed
REMEMBERED_MAX: Final = 1000  # batches of other consumers that were acknowledged as a whole


class ForeignAcks:
    """Acknowledgements of messages that other consumers have, in this process or others.

    The cluster takes an acknowledgement from any consumer of the subscription: of a whole entry, and of one message of a batch if it
    stores these (`by_index`). Otherwise all messages of a batch have to be acknowledged together.
    """

    def __init__(self, source: Subscription, owner: object, *, by_index: bool) -> None:
        self._source = source
        self._owner = owner
        self._by_index = by_index
        self._done: dict[Place, None] = {}  # batches that were acknowledged as a whole
        # Entries whose acknowledgement may meet them on their way here, with the number of the acknowledgement.
        self._meeting: dict[Place, int] = {}
        self.given = 0  # acknowledgements
        # Links of other consumers of this process that have acknowledged for this one, each with the number of the last time.
        self._links: dict[Link, int] = {}
        self._times = 0
        self._unconfirmed = Unconfirmed()  # what they acknowledged

    def has_done(self, place: Place) -> bool:
        """Whether an entry was acknowledged as it was on its way here."""
        return bool(self._meeting) and self._meeting.pop(place, None) is not None

    def stored(self, given: int) -> None:
        """The first `given` acknowledgements are stored: what was sent before has arrived."""
        if self._meeting:
            self._meeting = {place: number for place, number in self._meeting.items() if number > given}

    def lose(self) -> None:
        """The link connects again: acknowledgements may be lost."""
        self._meeting.clear()

    def acknowledge(self, ids: Sequence[MessageId], link: Link) -> int:
        """Returns how many messages were acknowledged."""
        count = 0
        whole: list[Place] = []
        batches: dict[Place, list[MessageId]] = {}
        for one in ids:
            place, index, size = (one.ledger, one.entry), one.batch_index, one.batch_size
            if place in self._done or self._settle(one):
                count += 1
            elif index < 0 or size == 1:
                whole.append(place)
                count += 1
            elif index >= size:
                continue
            elif self._by_index:
                link.acknowledge_part(place, (1 << size) - 1 & ~(1 << index))
                count += 1
            else:
                batches.setdefault(place, []).append(one)
        for place, some in batches.items():
            if len({one.batch_index for one in some}) == some[0].batch_size:
                whole.append(place)
                self._remember(place)
                count += len(some)
        if whole:
            link.acknowledge(whole)
            self.given += 1
            self._meeting.update(dict.fromkeys(whole, self.given))
            while len(self._meeting) > MEETING_MAX:
                del self._meeting[next(iter(self._meeting))]
        return count

    def _settle(self, message_id: MessageId) -> bool:
        """Have the other consumer that has a message acknowledge it; False if there is none in this process."""
        link = self._source.settle(message_id, self._owner)
        if link is None:
            return False
        self._unconfirmed.give()
        self._times += 1
        self._links[link] = self._times
        if len(self._links) > LINKS_MAX:
            del self._links[next(iter(self._links))]
            self._unconfirmed.lose()
        return True

    async def flush(self) -> None:
        """Complete when the acknowledgements that other consumers made for this one are durable; raises if one of them failed."""
        await self._unconfirmed.flush(self._store, lambda: Moved(self._source.topic.name))

    async def _store(self) -> None:
        for link, times in list(self._links.items()):
            try:
                await link.flush()
            except PenstockError:
                self._flushed(link, times)
                self._unconfirmed.lose()
                raise
            self._flushed(link, times)

    def _flushed(self, link: Link, times: int) -> None:
        if self._links.get(link) == times:
            del self._links[link]

    def _remember(self, place: Place) -> None:
        """Acknowledging its messages again, one by one, succeeds."""
        self._done[place] = None
        if len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]

    def forget(self) -> None:
        """The subscription moved: the batches may be redelivered."""
        self._done.clear()
        self._meeting.clear()
