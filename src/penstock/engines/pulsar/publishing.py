"""Publishing to one topic or partition of the cluster: messages become entries, entries go out in order, ids come back."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.producer import Result
from penstock.client.entries.pending import DUPLICATE, Outcome, Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.errors import PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.shared.publishing import RAISING_MAX, Numbers, batch_sizes, cut
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import UNKNOWN_ID, MessageId
from penstock.runtime.clock import LoopClock
from penstock.wire import entry as wire

from .topic import PulsarTopic

_CLOCK: Final = LoopClock()


class Posted(msgspec.Struct, gc=False):
    """Entries that are on their way: the places of each one's messages in the call, and what becomes of the entries."""

    places: Sequence[Sequence[int]]
    future: asyncio.Future[list[Outcome]]
    size: int  # bytes of the entries
    sent_ms: int


class PartitionProducer:
    """One producer's half of one topic or partition. Calls are served in the order in which they came.

    Sequence ids are assigned at the moment of sending, so that those of one partition always rise.
    """

    def __init__(
        self,
        topic: PulsarTopic,
        entries: EntryProducer,
        numbers: Numbers,
        deduplicate: Callable[[], bool],
        *,
        shared_name: str = "",
        numbered: bool = False,
    ) -> None:
        """`shared_name` and `numbered`: as in `Partitions`."""
        self.entries = entries
        self._shared_name = shared_name
        self._numbered = numbered
        self._topic = topic
        self._partition = topic.name.partition
        self._numbers = numbers
        self._deduplicate = deduplicate
        self._highest = entries.last_sequence_id  # that was sent
        self._turn = asyncio.Lock()

    # -- out

    async def post(
        self,
        messages: Sequence[OutMessage],
        places: Sequence[int],
        results: list[Result | None],
        *,
        batch: bool,
    ) -> list[Posted]:
        """Send messages. Those that cannot be sent have their result when this returns, the others follow with `collect`."""
        async with self._turn:
            await self._room()
            given = self._numbers.give_all(messages)
            if given and not self._shared_name and self._deduplicate():
                messages, places = _below_max(messages, places, results)
            counts = batch_sizes(messages) if batch else [1] * len(messages)
            if not given:
                return self._send(messages, places, counts, results)
            posted: list[Posted] = []
            at = 0
            for part, repeats in self._rising(messages, counts):
                if repeats and self._deduplicate():
                    # The broker cannot recognize a repeat of an entry that it has not stored yet, and refuses it.
                    await self.entries.settled()
                size = sum(part)
                posted += self._send(messages[at : at + size], places[at : at + size], part, results)
                at += size
            return posted

    def _name(self) -> str:
        """The producer name in entries. When the broker loads the topic, it learns the stored ids from the entries. So entries that
        it deduplicates by the connection's name carry that name."""
        if self._shared_name and (self._numbered or not self._deduplicate()):
            return self._shared_name
        return self.entries.name

    async def post_plain(
        self, payloads: Payloads, schema_version: int | None, *, each: bool = False
    ) -> tuple[int, int]:
        """Send messages that are nothing but payloads as one entry; returns its ledger and its id. `each`: the broker makes an entry
        of each, and the id is that of the first."""
        async with self._turn:
            await self._room()
            first = self._numbers.take(len(payloads))
            entry = wire.encode_plain(
                payloads,
                producer=self._name(),
                sequence_id=first,
                publish_time=_CLOCK.now_ms(),
                schema_version=schema_version,
            )
            self._check_size(entry)
            self._highest = entry.sequence_id
            future = self._go([Outgoing(entry.data, first, entry.sequence_id, entry.count, each=each)])
            sent_ms = _CLOCK.monotonic_ms()
        (outcome,) = await future
        if isinstance(outcome, PulsarException):
            raise self.error(outcome)
        self._topic.published(entry.count, len(entry.data), _CLOCK.monotonic_ms() - sent_ms)
        return outcome

    async def post_entries(self, entries: Sequence[Outgoing], *, renumber: bool = False) -> list[Result]:
        """Send entries as they are; a result each. `renumber`: to the broker they have this producer's numbers."""
        async with self._turn:
            await self._room()
            if renumber:
                entries = [self._renumbered(entry) for entry in entries]
            self._highest = max(self._highest, *(entry.highest for entry in entries))
            future = self._go(entries)
        return [
            self.error(outcome)
            if isinstance(outcome, PulsarException)
            else UNKNOWN_ID
            if outcome == DUPLICATE
            else MessageId(*outcome, self._partition)
            for outcome in await future
        ]

    def _renumbered(self, entry: Outgoing) -> Outgoing:
        first = self._numbers.take(entry.count)
        return Outgoing(entry.data, first, first + entry.count - 1, entry.count)

    async def _room(self) -> None:
        try:
            await self.entries.room()
        except PulsarException as error:
            raise self.error(error) from None

    def _go(self, entries: Sequence[Outgoing]) -> asyncio.Future[list[Outcome]]:
        try:
            return self.entries.send_all(entries)
        except PulsarException as error:
            raise self.error(error) from None

    def _rising(self, messages: Sequence[OutMessage], counts: Sequence[int]) -> list[tuple[list[int], bool]]:
        """Cut batches so that within them, and from one to the next, sequence ids rise, but for repeats, which go alone:
        the broker looks at the first of a batch only. Returns runs of batches, and whether the first of a run is a repeat."""
        runs: list[tuple[list[int], bool]] = []
        highest, at = self._highest, 0
        for count in counts:
            joins = False
            for message in messages[at : at + count]:
                number = message.sequence_id
                assert number is not None
                if number <= highest:
                    runs.append(([1], True))
                    joins = False
                    continue
                highest = number
                if joins:
                    runs[-1][0][-1] += 1
                elif runs and not runs[-1][1]:
                    runs[-1][0].append(1)
                else:
                    runs.append(([1], False))
                joins = True
            at += count
        return runs

    def _send(
        self,
        messages: Sequence[OutMessage],
        places: Sequence[int],
        counts: Sequence[int],
        results: list[Result | None],
    ) -> list[Posted]:
        if len(counts) == len(messages):
            entries = self._encode_each(messages, places, results)
        else:
            entries = []
            for run, where in zip(cut(messages, counts), cut(places, counts), strict=True):
                entries += self._encode(run, where, results)
        if not entries:
            return []
        self._highest = max(self._highest, *[entry.highest for entry, _ in entries])
        size = sum([len(entry.data) for entry, _ in entries])
        future = self._go([entry for entry, _ in entries])
        return [Posted([where for _, where in entries], future, size, _CLOCK.monotonic_ms())]

    def _encode_each(
        self, messages: Sequence[OutMessage], places: Sequence[int], results: list[Result | None]
    ) -> list[tuple[Outgoing, Sequence[int]]]:
        try:
            made = wire.encode_each(messages, producer=self._name(), publish_time=_CLOCK.now_ms())
        except PenstockError:  # one of them: each is tried alone
            return [
                one
                for message, place in zip(messages, places, strict=True)
                for one in self._encode([message], [place], results)
            ]
        size_max = self.entries.max_message_size
        entries: list[tuple[Outgoing, Sequence[int]]] = []
        for entry, place in zip(made, places, strict=True):
            data, number = entry.data, entry.sequence_id
            if len(data) > size_max:
                results[place] = _too_large(len(data), size_max)
            else:
                entries.append((Outgoing(data, number, number), (place,)))
        return entries

    def _encode(
        self, run: Sequence[OutMessage], places: Sequence[int], results: list[Result | None]
    ) -> list[tuple[Outgoing, Sequence[int]]]:
        """The entry of some messages; if they do not fit together, one of each that fits."""
        first = run[0].sequence_id or 0
        try:
            entry = wire.encode(
                run,
                producer=self._name(),
                sequence_id=first,
                publish_time=_CLOCK.now_ms(),
                schema_version=run[0].schema_version,
            )
            self._check_size(entry)
        except PenstockError as error:
            if len(run) > 1:
                return [
                    one
                    for message, place in zip(run, places, strict=True)
                    for one in self._encode([message], [place], results)
                ]
            results[places[0]] = error
            return []
        return [(Outgoing(entry.data, first, entry.sequence_id, len(run)), places)]

    def _check_size(self, entry: NewEntry) -> None:
        size, size_max = len(entry.data), self.entries.max_message_size
        if size > size_max:
            raise _too_large(size, size_max)

    # -- in

    async def collect(self, posted: Posted, results: list[Result | None]) -> int:
        """Wait for what became of entries, and set the result of each message; returns how many were stored."""
        stored, partition = 0, self._partition
        for outcome, places in zip(await posted.future, posted.places, strict=True):
            if isinstance(outcome, PulsarException):
                error = self.error(outcome)
                for place in places:
                    results[place] = error
                continue
            ledger, entry = outcome
            count = len(places)
            if ledger < 0:
                for place in places:
                    results[place] = UNKNOWN_ID
                continue
            stored += count
            if count == 1:
                results[places[0]] = MessageId(ledger, entry, partition)
            else:
                for index, place in enumerate(places):
                    results[place] = MessageId(ledger, entry, partition, index, count)
        if stored:
            self._topic.published(stored, posted.size, _CLOCK.monotonic_ms() - posted.sent_ms)
        return stored

    def error(self, error: PulsarException) -> PenstockError:
        """An error of the cluster, for publishers here."""
        return engine_error(error, str(self._topic.name))


def _below_max(
    messages: Sequence[OutMessage], places: Sequence[int], results: list[Result | None]
) -> tuple[Sequence[OutMessage], Sequence[int]]:
    """The messages with an id below `RAISING_MAX`, and their places. The others are refused: a broker that deduplicates by the
    connection's name would drop every later message of the connection that has an id of the server's."""
    kept: list[tuple[OutMessage, int]] = []
    for message, place in zip(messages, places, strict=True):
        if (message.sequence_id or 0) >= RAISING_MAX:
            results[place] = PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"sequence id {message.sequence_id} without a producer name; there the bound is 2^62",
            )
        else:
            kept.append((message, place))
    return [message for message, _ in kept], [place for _, place in kept]


def _too_large(size: int, size_max: int) -> PenstockError:
    return PenstockError(
        ErrorKind.TOO_LARGE, f"an entry of {size} bytes; the cluster takes at most {size_max}"
    )
