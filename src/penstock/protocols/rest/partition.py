"""Reads of a partition: the start, messages within bounds, and the memory of the answer."""

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, require
from penstock.broker.log import Log
from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.http.answers import JSON_TYPE
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.transport import COUNTED
from penstock.protocols.values import Values

from .encoding import Encoding, Shown
from .operations import NUMBER
from .parts import Bounds, Decoding, Part

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def cut_value(text: str, most: int) -> str:
    """A message's JSON whose value takes at most `most` characters; one that was longer is a text of how it begins.

    `valueSize` is then how many bytes of JSON the whole value takes.
    """
    if len(text) <= most:
        return text
    fields = _fields.decode(text)
    value = bytes(fields["value"])
    if len(value) <= most:
        return text
    whole = msgspec.json.decode(value, type=str) if value.startswith(b'"') else value.decode()
    fields["value"] = msgspec.Raw(msgspec.json.encode(whole[:most]))
    fields["valueSize"] = msgspec.Raw(b"%d" % len(value))
    return msgspec.json.encode(fields).decode()


START: Final = (
    Parameter("message_id", "Start after this one; also `earliest` and `latest`."),
    Parameter("offset", "Start at this offset.", NUMBER),
    Parameter(
        "publish_time", "Start with what was published at or after this time, ms since the epoch.", NUMBER
    ),
    Parameter("end_offset", "Stop before this offset.", NUMBER),
)
SMALL_BYTES: Final = 64 * 1024  # an answer that is not counted


async def log_of(broker: Broker, name: TopicName, partition: int) -> Topic:
    """The log of a partition, refreshed; a topic without partitions is its own partition 0.

    Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND.
    """
    count = broker.topics.partitions(name)
    if partition >= max(1, count):
        raise PenstockError(
            ErrorKind.PARTITION_NOT_FOUND, f"{name} has no partition {partition}: there are {max(1, count)}"
        )
    found = await broker.topics.get(name.of_partition(partition) if count else name, create=False)
    await found.refresh()
    return found


def check_offsets(broker: Broker, params: Params) -> None:
    """Raise NOT_SUPPORTED if a request names offsets and the log does not number messages."""
    if params.text("offset") is not None or params.text("end_offset") is not None:
        require(broker.capabilities, Capability.OFFSETS)


async def start_of(topic: Topic, params: Params, last_event_id: str | None = None) -> int:
    """The offset to begin with: after `message_id`, at `offset`, at the first since `publish_time`, or the earliest."""
    given = [name for name in ("message_id", "offset", "publish_time") if params.text(name) is not None]
    if len(given) > 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{' and '.join(given)} exclude one another")
    message_id = last_event_id or params.text("message_id")
    if message_id is not None:
        return await topic.offset_after(MessageId.parse(message_id))
    publish_time = params.number("publish_time")
    if publish_time is not None:
        return await topic.offset_at_time(publish_time)
    offset = params.number("offset")
    first = topic.bounds.first_offset
    return first if offset is None else max(offset, first)


async def id_at(topic: Log, offset: int) -> str | None:
    """The id of the message at an offset; None if it was trimmed."""
    for entry in await topic.read_at(offset, 1):
        return str(topic.id_of(entry, offset - entry.offset if entry.count > 1 else -1))
    return None


class Messages:
    """The messages of a partition from the offset `at` on, within `bounds`; values longer than `value_max` are cut."""

    def __init__(
        self,
        topic: Topic,
        decoding: Decoding,
        values: Values,
        at: int,
        bounds: Bounds,
        value_max: int | None = None,
    ) -> None:
        self.topic = topic
        self.at = at
        self.bounds = bounds
        self._value_max = value_max
        self._decoding = decoding
        self._encoding = Encoding(decoding, values)

    def take(self, entries: Sequence[Entry], end: int) -> Shown:
        """The messages of the entries that follow, before the offset `end`. Offsets may skip, also past `end`."""
        topic, bounds, decoding = self.topic, self.bounds, self._decoding
        parts: list[Part] = []
        for entry in entries:
            offset, at = entry.offset, self.at
            if offset >= end:
                self.at = max(
                    at, end
                )  # nothing lies between: a reader that continues would always get the same entry
                break
            until = min(offset + entry.count, end)
            mask = (1 << until - offset) - 1
            if at > offset:
                mask = mask >> at - offset << at - offset
            part = decoding.part(topic, entry, mask)
            if at > offset and part.whole:  # it is one message, which lies before
                self.at = max(at, offset + entry.count)
                continue
            taken = bounds.take(part.sizes)
            if taken < len(part.sizes):
                part.cut(taken)
            if taken:
                parts.append(part)
                at = offset + part.places[-1] + 1
            if bounds.full:
                self.at = at
                break
            self.at = max(at, until)
        shown = self._encoding.encode(parts)
        if self._value_max is not None:
            shown.texts = [cut_value(text, self._value_max) for text in shown.texts]
        return shown


class Answered:
    """The bytes that one answer takes while it is made and sent, counted for its caller; it ends with `count(0)`."""

    def __init__(self, exchange: Exchange) -> None:
        self._holding = exchange.holding
        self._counted = 0
        self._reserved = 0
        exchange.scope[COUNTED] = True

    async def room(self, size: int, *, needed: bool) -> bool:
        """Reserve `size` bytes for a read, until the next `count`; False without room.

        Waits for room for `needed` bytes; raises TOO_MANY_REQUESTS or UNAVAILABLE if there is none.
        """
        holding = self._holding
        if holding is None:
            return True
        if needed:
            await holding.reserved_soon(size)
        elif not holding.reserve(size):
            return False
        self._reserved += size
        return True

    async def wait(self, size: int) -> None:
        """Reserve `size` bytes for a read, until the next `count`, as soon as there is room."""
        if self._holding is not None:
            await self._holding.reserved(size)
            self._reserved += size

    async def send(self, exchange: Exchange, parts: list[bytes]) -> None:
        """Give the whole answer, in JSON; a large one part by part, each freed once it is written."""
        size = sum([len(part) for part in parts])
        if size <= SMALL_BYTES:
            self.count(0)
            await exchange.answer(b"".join(parts))
            return
        self.count(size)
        await exchange.head(200, JSON_TYPE, (b"content-length", b"%d" % size))
        parts.reverse()
        while parts:
            await exchange.part(parts.pop())
        await exchange.end()

    def count(self, size: int) -> None:
        """It takes `size` bytes now."""
        if self._holding is None:
            return
        if size <= SMALL_BYTES:
            size = 0
        change = size - self._counted - self._reserved
        if change:
            self._holding.send(change)
        self._counted, self._reserved = size, 0
