"""Acknowledgements of one consumer that are not known to be durable, so that the next owner of the partition can get them again."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Place
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId

from .link import Link, Moved
from .subscription import Subscription

UNSTORED_MAX: Final = 10_000  # entries
MEETING_MAX: Final = 10_000  # entries
LINKS_MAX: Final = 1000  # of other consumers whose acknowledgements are not flushed
REMEMBERED_MAX: Final = 1000  # batches of other consumers that were acknowledged as a whole


class Unconfirmed:
    """The acknowledgements of one link, by their numbers.

    A `flush` answers for the acknowledgements since the one before it began, or for the same as that one if there are no newer ones,
    and fails if one of them is lost. Without newer ones, at most as many fail as acknowledgements were lost.
    """

    def __init__(self) -> None:
        self._given = self._confirmed = 0  # acknowledgements, and those that are durable or lost
        self._flushed = (0, 0)  # the last flush answers for those after the first number, up to the second
        self._lost_up_to = 0  # the last one that is lost
        self._refusals = 0  # how many flushes those that are lost still fail

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return self._given > self._confirmed

    def give(self) -> None:
        """An acknowledgement is about to be given."""
        self._given += 1

    def lose(self) -> None:
        """Those that are not confirmed are lost, or may be."""
        count = self._given - self._confirmed
        if count:
            self._lost_up_to = self._confirmed = self._given
            self._refusals += count

    async def flush(self, store: Callable[[], Awaitable[None]], lost: Callable[[], PenstockError]) -> None:
        """Confirm the acknowledgements given so far by `store`. Raises what `store` raises, and `lost()`."""
        given, before = self._given, self._lost_up_to
        after, up_to = self._flushed
        if given > up_to:
            after = up_to
            self._flushed = after, given
        if before <= after:
            self._refusals = 0  # those of earlier flushes
        elif self._refusals:
            self._refuse()
            raise lost()
        try:
            await store()
        except PenstockError:
            if self._lost_up_to > before:
                self._refuse()
            raise
        if self._lost_up_to > before:
            self._refuse()
            raise lost()
        self._confirmed = max(self._confirmed, given)

    def _refuse(self) -> None:
        """One fewer flush is to fail."""
        self._refusals = max(0, self._refusals - 1)


class _Entry(NamedTuple):
    number: int  # of the last acknowledgement
    open_bits: int  # the messages that are not acknowledged


class Unstored:
    """Those of one entry are kept as one. With more than UNSTORED_MAX entries it is `overrun`, and keeps none until it is cleared."""

    def __init__(self) -> None:
        self.number = 0  # of the last acknowledgement
        self.overrun = False
        self._entries: dict[Place, _Entry] = {}  # in the order of the last acknowledgements
        self._up_to: tuple[int, Place, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._entries) or self._up_to is not None or self.overrun

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, place: Place, open_bits: int = 0) -> None:
        """All messages of an entry but those in `open_bits` are done."""
        self.number += 1
        known = self._entries.pop(place, None)
        if known is not None:
            open_bits &= known.open_bits
        elif len(self._entries) >= UNSTORED_MAX:
            self._entries.clear()
            self._up_to = None
            self.overrun = True
        if not self.overrun:
            self._entries[place] = _Entry(self.number, open_bits)

    def add_up_to(self, place: Place, open_bits: int = 0) -> None:
        """All entries before `place` are done, and that one but for the messages in `open_bits`."""
        self.number += 1
        if self.overrun:
            return
        if self._up_to is not None:
            _, known, bits = self._up_to
            if known > place:
                place, open_bits = known, bits
            elif known == place:
                open_bits &= bits
        self._up_to = (self.number, place, open_bits)

    def stored(self, number: int) -> None:
        """All acknowledgements up to the one of a number are durable."""
        done: list[Place] = []
        for place, entry in self._entries.items():
            if entry.number > number:
                break
            done.append(place)
        for place in done:
            del self._entries[place]
        if self._up_to is not None and self._up_to[0] <= number:
            self._up_to = None
        if number == self.number:
            self.overrun = False

    def clear(self) -> None:
        """None of them matters any more."""
        self.stored(self.number)

    def give_to(self, to: AckSink) -> None:
        """Acknowledge all of them over another link."""
        if self._up_to is not None:
            to.acknowledge_up_to(self._up_to[1], self._up_to[2])
        whole = [place for place, entry in self._entries.items() if not entry.open_bits]
        if whole:
            to.acknowledge(whole)
        for place, entry in self._entries.items():
            if entry.open_bits:
                to.acknowledge_part(place, entry.open_bits)

    # -- as an `AckSink`

    def acknowledge(self, places: Iterable[Place]) -> None:
        for place in places:
            self.add(place)

    acknowledge_part = add
    acknowledge_up_to = add_up_to


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
        """The first `given` acknowledgements are stored: those sent before have arrived."""
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
        """Let the consumer that has a message acknowledge it; False if it is not in this process."""
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
