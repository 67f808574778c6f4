"""Entries on their way: encoded, retained until the broker's receipt, and sent again on a new connection.

And requests (PIP-371), which wait for replies after that.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from penstock.client.enums import CompressionType
from penstock.client.errors import InvalidMessage, MessageTooBig, PulsarException
from penstock.client.message_id import MessageId
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage
from penstock.wire import entry as wire
from penstock.wire.contents import compressed, parse, seal

from . import commands
from .batch import Batch, Sending


class Sent(msgspec.Struct, eq=False):
    """One entry. `tokens` are called with the results of its messages; a chunk that is not the last has none.

    `chunks` is shared by the chunks of one message, and collects their ids.
    """

    sequence_id: int
    highest: int
    frames: tuple[bytes, bytes]
    tokens: list[Any]
    born: float
    chunks: list[tuple[int, int]] | None = None


class Settled(msgspec.Struct, eq=False):
    """The result of an entry's messages: their ids, or the error."""

    tokens: list[Any]
    ledger: int = -1
    entry: int = -1
    error: PulsarException | None = None
    chunks: tuple[tuple[int, int], ...] = ()
    partition: int = -1  # the partition it was stored in; -1 if the broker does not name it

    def ids(self, partition: int, topic: str) -> list[MessageId]:
        """The id of each message."""
        count = len(self.tokens)
        if count == 1:
            return [MessageId(partition, self.ledger, self.entry, -1, 0, topic, self.chunks)]
        ledger, entry = self.ledger, self.entry
        return [MessageId(partition, ledger, entry, index, count, topic) for index in range(count)]


def failed(tokens: list[Any], error: PulsarException) -> Settled:
    """Messages that will not be stored."""
    return Settled(tokens, error=error)


class Encoder:
    """A producer's messages to entries."""

    def __init__(self, producer_id: int, settings: Sending) -> None:
        self._producer_id = producer_id
        self._settings = settings
        self.name = ""
        self.max_message_size = 0
        self.next_sequence_id = 0

    def batch(self, batch: Batch, now_ms: int) -> tuple[list[Sent], list[Settled]]:
        """The entry of a batch; messages that cannot be encoded fail alone."""
        if batch.messages is not None and len(batch.messages) == 1:
            return self.alone(batch.messages[0], batch.tokens, batch.born, batch.version, now_ms)
        try:
            return [self._batch(batch, now_ms)], []
        except PenstockError as error:
            if batch.messages is None and (len(batch.tokens) > 1 or not self._settings.chunking):
                return [], [failed(batch.tokens, _client_error(error))]
            messages = batch.messages or [OutMessage(payload=batch.payloads[0])]
        sent: list[Sent] = []
        settled: list[Settled] = []
        for message, token in zip(messages, batch.tokens, strict=True):
            more, bad = self.alone(message, [token], batch.born, batch.version, now_ms)
            sent += more
            settled += bad
        return sent, settled

    def plain(self, payload: bytes, token: Any, version: int | None, now: float) -> Sent | None:
        """The entry of a message with a payload only; None if that takes more than encoding."""
        if self._settings.compression is not CompressionType.NONE:
            return None
        number = self.next_sequence_id
        data = wire.encode_plain(
            (payload,),
            producer=self.name,
            sequence_id=number,
            publish_time=int(now * 1000),
            schema_version=version,
        ).data
        if len(data) > self.max_message_size:
            return None
        self.next_sequence_id = number + 1
        head = commands.send(self._producer_id, number, number, 1, data, chunk=False)
        return Sent(number, number, (head, data), [token], now)

    def _batch(self, batch: Batch, now_ms: int) -> Sent:
        first = self.next_sequence_id
        if batch.messages is None:
            entry = wire.encode_plain(
                batch.payloads,
                producer=self.name,
                sequence_id=first,
                publish_time=now_ms,
                schema_version=batch.version,
            )
        else:
            own = batch.messages[0].sequence_id
            entry = wire.encode(
                batch.messages,
                producer=self.name,
                sequence_id=first,
                publish_time=now_ms,
                schema_version=batch.version,
            )
            first = first if own is None else own
        data = entry.data
        if self._settings.compression is not CompressionType.NONE:
            data = compressed(data, self._settings.compression)
        if len(data) > self.max_message_size:
            raise MessageTooBig(f"an entry of {len(data)} bytes; the broker takes {self.max_message_size}")
        self._count(batch.messages, entry.count)
        head = commands.send(self._producer_id, first, entry.sequence_id, entry.count, data, chunk=False)
        return Sent(first, entry.sequence_id, (head, data), batch.tokens, batch.born)

    def alone(
        self, message: OutMessage, tokens: list[Any], born: float, version: int | None, now_ms: int
    ) -> tuple[list[Sent], list[Settled]]:
        """The entry of one message, or those of its chunks."""
        sequence_id = self.next_sequence_id if message.sequence_id is None else message.sequence_id
        try:
            data = wire.encode(
                [message],
                producer=self.name,
                sequence_id=sequence_id,
                publish_time=now_ms,
                schema_version=version,
            ).data
            if self._settings.compression is not CompressionType.NONE:
                data = compressed(data, self._settings.compression)
            if len(data) <= self.max_message_size:
                head = commands.send(self._producer_id, sequence_id, sequence_id, 1, data, chunk=False)
                sent = [Sent(sequence_id, sequence_id, (head, data), tokens, born)]
            elif self._settings.chunking:
                sent = self._chunks(data, sequence_id, tokens, born)
            else:
                raise MessageTooBig(f"{len(data)} bytes; the broker takes {self.max_message_size}")
        except PenstockError as error:
            return [], [failed(tokens, _client_error(error))]
        self._count([message], 1)
        return sent, []

    def _chunks(self, data: bytes, sequence_id: int, tokens: list[Any], born: float) -> list[Sent]:
        metadata, payload = parse(data)
        metadata.uuid = f"{self.name}-{sequence_id}"
        metadata.total_chunk_msg_size = len(payload)
        metadata.num_chunks_from_msg = metadata.chunk_id = 2**31 - 1  # as large as they may get
        room = self.max_message_size - metadata.ByteSize() - 10  # the checksum and the metadata's size
        if room <= 0:
            raise MessageTooBig("the metadata alone is larger than the broker takes")
        parts = [payload[at : at + room] for at in range(0, len(payload), room)]
        metadata.num_chunks_from_msg = len(parts)
        where: list[tuple[int, int]] = []
        sent: list[Sent] = []
        for number, part in enumerate(parts):
            metadata.chunk_id = number
            head = metadata.SerializeToString()
            entry = seal(len(head).to_bytes(4, "big") + head + part)
            frame = commands.send(self._producer_id, sequence_id, sequence_id, 1, entry, chunk=True)
            last = number == len(parts) - 1
            sent.append(Sent(sequence_id, sequence_id, (frame, entry), tokens if last else [], born, where))
        return sent

    def _count(self, messages: list[OutMessage] | None, count: int) -> None:
        """Only messages without a sequence id use one up."""
        if messages is None:
            self.next_sequence_id += count
        else:
            self.next_sequence_id += sum(message.sequence_id is None for message in messages)


def _client_error(error: PenstockError) -> PulsarException:
    return error if isinstance(error, PulsarException) else InvalidMessage(error.message)


class Waiting(Protocol):
    """A token that waits for a reply as well."""

    is_request: bool


class PendingRequests:
    """The requests of one producer that wait for a reply.

    A reply may overtake the receipt with the request's id, so it is found by sequence id; a broker that does
    not send the sequence id is understood by the message id.
    """

    def __init__(self) -> None:
        self._by_sequence: dict[int, Waiting] = {}
        self._by_id: dict[tuple[int, int], int] = {}

    def sent(self, sequence_id: int, tokens: list[Waiting]) -> None:
        """A request went out. It went alone: what goes with others waits for nothing."""
        if len(tokens) == 1 and getattr(tokens[0], "is_request", False):
            self._by_sequence[sequence_id] = tokens[0]

    def placed(self, sequence_id: int, ledger: int, entry: int) -> None:
        """The broker has stored it."""
        if sequence_id in self._by_sequence:
            self._by_id[ledger, entry] = sequence_id

    def answered(self, sequence_id: int | None, ledger: int, entry: int) -> Waiting | None:
        """Whose reply this is; None when its request does not wait (any more)."""
        if sequence_id is None:
            sequence_id = self._by_id.get((ledger, entry))
        token = None if sequence_id is None else self._by_sequence.get(sequence_id)
        if token is not None:
            self.forget(token)
        return token

    def forget(self, token: Waiting) -> None:
        """The requester waits no longer."""
        gone = [
            number
            for number, other in self._by_sequence.items()
            if token in (other, getattr(other, "inner", None))
        ]
        for number in gone:
            del self._by_sequence[number]
        if gone:
            self._by_id = {place: number for place, number in self._by_id.items() if number not in gone}

    def __len__(self) -> int:
        return len(self._by_sequence)
