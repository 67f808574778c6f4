"""Acknowledgements of messages that are not out with the consumer that is asked: others have them, here or in other processes."""

from collections.abc import Sequence
from typing import Final

from penstock.client.entries.consumer import EntryConsumer
from penstock.model.message_id import MessageId

from .outstanding import Place
from .subscription import Subscription

REMEMBERED_MAX: Final = 1000


class Elsewhere:
    """One consumer's. What no consumer of this process has, the cluster takes from any consumer of the subscription: whole
    entries, and messages of batches where it keeps these (`by_index`); elsewhere all messages of a batch together."""

    def __init__(self, source: Subscription, owner: object, *, by_index: bool) -> None:
        self._source = source
        self._owner = owner
        self._by_index = by_index
        self._done: dict[Place, None] = {}  # batches that were acknowledged as a whole

    def acknowledge(self, ids: Sequence[MessageId], entries: EntryConsumer) -> int:
        """Returns how many messages were acknowledged."""
        count = 0
        whole: list[Place] = []
        batches: dict[Place, list[MessageId]] = {}
        for one in ids:
            place, index, size = (one.ledger, one.entry), one.batch_index, one.batch_size
            if place in self._done or self._source.settle(one, self._owner):
                count += 1
            elif index < 0 or size == 1:
                whole.append(place)
                count += 1
            elif index >= size:
                continue
            elif self._by_index:
                entries.acknowledge_part(place, (1 << size) - 1 & ~(1 << index))
                count += 1
            else:
                batches.setdefault(place, []).append(one)
        for place, some in batches.items():
            if len({one.batch_index for one in some}) == some[0].batch_size:
                whole.append(place)
                self._remember(place)
                count += len(some)
        if whole:
            entries.acknowledge(whole)
        return count

    def _remember(self, place: Place) -> None:
        """Who names its messages again, one by one, is right."""
        self._done[place] = None
        if len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]

    def forget(self) -> None:
        """The subscription moved: they may come again."""
        self._done.clear()
