"""One producer's messages from `send` to their receipts, over any number of connections.

    add -> held (while a schema is being registered) -> batch -> sent -> settled

Order is kept all the way: what comes after a message that waits for its schema waits as well. Nothing is lost
when a connection is: entries without a receipt go out again, with the sequence ids they had, so that the
broker can distinguish them from new ones. Tokens represent the callers; the driver calls them with the results.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.client.enums import BatchingType
from penstock.client.errors import NotConnected, PulsarException, Timeout
from penstock.client.schema.schema import Schema
from penstock.model.message import OutMessage

from .batch import Batch, Held, Sending, batch_key
from .sent import Encoder, PendingRequests, Sent, Settled, failed


class Outbox:
    """`count` is the number of messages without a receipt. `settled` collects the results for the driver."""

    def __init__(self, producer_id: int, settings: Sending) -> None:
        self.settings = settings
        self.count = 0
        self.attached = False
        self.urgent = False  # a caller waits for messages in the batches
        self.last_sequence_id = -1
        self.waits = PendingRequests()
        self.wanted: Schema | None = None
        self._version: int | None = None
        self._versions: dict[bytes, int | None] = {}
        self._encoder = Encoder(producer_id, settings)
        self._held: deque[Held] = deque()
        self._batches: dict[str | bytes, Batch] = {}
        self._sent: deque[Sent] = deque()
        self._out: list[bytes] = []
        self._settled: list[Settled] = []
        if settings.initial_sequence_id is not None:
            self.last_sequence_id = settings.initial_sequence_id
        self._encoder.next_sequence_id = self.last_sequence_id + 1

    @property
    def name(self) -> str:
        """The producer's name, "" until the broker has given one."""
        return self._encoder.name

    @property
    def in_flight(self) -> bool:
        """Whether an entry waits for its receipt."""
        return bool(self._sent)

    def attach(self, name: str, last_sequence_id: int, version: int | None, max_message_size: int) -> None:
        """The broker has the producer: what has no receipt goes (again)."""
        first = not self._encoder.name
        self._encoder.name = name
        self._encoder.max_message_size = max_message_size
        if first:
            if self.settings.initial_sequence_id is None and last_sequence_id >= 0:
                self.last_sequence_id = last_sequence_id
                self._encoder.next_sequence_id = last_sequence_id + 1
            self._version = version
        self.attached = True
        self._out = [part for sent in self._sent for part in sent.frames]
        if first and self._held:
            self._release()

    def knows(self, identity: bytes, version: int | None) -> None:
        """A schema's version, known without asking."""
        self._versions[identity] = version

    def detach(self) -> None:
        """The connection is gone."""
        self.attached = False
        self._out.clear()

    def take(self) -> list[bytes]:
        """The bytes to write now."""
        if not self.attached:
            return []
        out, self._out = self._out, []
        return out

    def settled(self) -> list[Settled]:
        """Results since the last call."""
        settled, self._settled = self._settled, []
        return settled

    def add_plain(self, payload: bytes, token: Any, now: float) -> None:
        """A message of the producer's own schema that is nothing but its payload."""
        self.count += 1
        if self._held or not self._encoder.name:
            self._held.append(Held(payload, None, token, now))
            return
        batch = self._batches.get("")
        if batch is None or batch.version != self._version:
            batch = self._open("", self._version, now)
        elif batch.size + len(payload) > self.settings.batch_bytes_max > 0:
            self.flush(now)
            batch = self._open("", self._version, now)
        batch.add_plain(payload, token)
        self._close_if_full(batch, now)

    def add_now(self, payload: bytes, token: Any, now: float) -> bool:
        """`add_plain` and `flush` in one, faster; False if something has to be done before."""
        if self._held or self._batches or not self.attached:
            return False
        sent = self._encoder.plain(payload, token, self._version, now)
        if sent is None:
            return False
        self.count += 1
        self._sent.append(sent)
        self._out += sent.frames
        return True

    def add(
        self,
        message: OutMessage,
        token: Any,
        now: float,
        schema: Schema | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """A message; `schema` is its own, None for the producer's. `alone` keeps it out of batches."""
        self.count += 1
        held = Held(message.payload, message, token, now, schema, alone)
        if self._held or not self._encoder.name or not self._ready(held):
            self._held.append(held)
            self._want()
        else:
            self._place(held)

    def registered(self, schema: Schema, version: int | None) -> None:
        """The broker's answer for `wanted`: the messages that waited go on."""
        self._versions[schema.identity] = version
        self._release()

    def unregistered(self, schema: Schema, error: PulsarException) -> None:
        """The broker refused `wanted`: the message that needs it fails, and nothing else does."""
        first = self._held[0].schema if self._held else None
        if first is not None and first.identity == schema.identity:
            held = self._held.popleft()
            self._settle(failed([held.token], error))
        self._release()

    def flush(self, now: float) -> None:
        """Close the batches."""
        self.urgent = False
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            sent, bad = self._encoder.batch(batch, int(now * 1000))
            self._go(sent, bad)

    def flush_if_named(self, now: float) -> None:
        """Close the batches, unless the broker has not answered yet: entries name their producer."""
        if self._encoder.name:
            self.flush(now)

    def receipt(self, sequence_id: int, ledger: int, entry: int, partition: int = -1) -> bool:
        """The broker has an entry. False: one before it was passed over, and the connection is of no use."""
        if not self._sent or self._sent[0].sequence_id != sequence_id:
            return all(sent.sequence_id != sequence_id for sent in self._sent)  # given up before
        sent = self._sent.popleft()
        if sent.chunks is not None:
            sent.chunks.append((ledger, entry))
        self.last_sequence_id = max(self.last_sequence_id, sent.highest)
        if sent.tokens:
            self.waits.placed(sequence_id, ledger, entry)
            chunks = tuple(sent.chunks or ())
            self._settle(Settled(sent.tokens, ledger, entry, chunks=chunks, partition=partition))
        return True

    def refused(self, sequence_id: int, error: PulsarException) -> None:
        """The broker will not have the entry with this highest sequence id: its messages fail."""
        for sent in [sent for sent in self._sent if sent.highest == sequence_id]:
            self._sent.remove(sent)
            self._settle(failed(sent.tokens, error))

    def deadline(self) -> float | None:
        """When `tick` has something to do."""
        times = [batch.born + self.settings.batch_delay_s for batch in self._batches.values()]
        if self.settings.timeout_s > 0:
            oldest = self._oldest()
            if oldest is not None:
                times.append(oldest + self.settings.timeout_s)
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Send batches that have waited long enough. If a message has waited too long, all waiting ones fail, as in Pulsar's
        clients: if what follows were stored without it, a broker that deduplicates would take its next attempt for a
        repeat."""
        first = min((batch.born for batch in self._batches.values()), default=now)
        if self._batches and now >= first + self.settings.batch_delay_s:
            self.flush_if_named(now)
        if self.settings.timeout_s <= 0:
            return
        oldest = self._oldest()
        if oldest is not None and oldest <= now - self.settings.timeout_s:
            self.fail(Timeout(f"no receipt within {self.settings.timeout_s:g} s"))

    def fail(self, error: PulsarException | None = None) -> None:
        """What waits fails, and will not be sent; without `error`, as the producer has ended."""
        error = error or NotConnected("the producer has ended")
        for sent in self._sent:
            self._settle(failed(sent.tokens, error))
        for batch in self._batches.values():
            self._settle(failed(batch.tokens, error))
        for held in self._held:
            self._settle(failed([held.token], error))
        self._sent.clear()
        self._batches.clear()
        self._held.clear()
        self._out.clear()

    def _oldest(self) -> float | None:
        times = [batch.born for batch in self._batches.values()]
        times += [queue[0].born for queue in (self._sent, self._held) if queue]
        return min(times, default=None)

    def _ready(self, held: Held) -> bool:
        return held.schema is None or held.schema.identity in self._versions

    def _want(self) -> None:
        """Only the first of those that wait may ask: the others stay behind it."""
        if self._encoder.name and self.wanted is None and self._held and not self._ready(self._held[0]):
            self.wanted = self._held[0].schema

    def _release(self) -> None:
        self.wanted = None
        while self._held and self._ready(self._held[0]):
            self._place(self._held.popleft())
        self._want()

    def _place(self, held: Held) -> None:
        version = self._version if held.schema is None else self._versions[held.schema.identity]
        message = held.message
        if held.alone and message is not None:
            self.flush(held.born)
            sent, bad = self._encoder.alone(message, [held.token], held.born, version, int(held.born * 1000))
            self._go(sent, bad)
            return
        key = batch_key(message) if self.settings.batching_type is BatchingType.KeyBased else ""
        batch = self._batches.get(key)
        if any(other.version != version for other in self._batches.values()) or (
            batch is not None and batch.size + len(held.payload) > self.settings.batch_bytes_max > 0
        ):
            self.flush(held.born)
            batch = None
        if batch is None:
            batch = self._open(key, version, held.born)
        if message is None:
            batch.add_plain(held.payload, held.token)
        else:
            batch.add(message, held.token)
        self._close_if_full(batch, held.born)

    def _open(self, key: str | bytes, version: int | None, born: float) -> Batch:
        if self._batches and key in self._batches:
            self.flush(born)
        batch = self._batches[key] = Batch(version, born)
        return batch

    def _close_if_full(self, batch: Batch, now: float) -> None:
        settings = self.settings
        if (
            not settings.batching
            or len(batch.tokens) >= settings.batch_count_max
            or batch.size >= settings.batch_bytes_max > 0
        ):
            self.flush(now)

    def _go(self, sent: list[Sent], bad: list[Settled]) -> None:
        for entry in sent:
            self._sent.append(entry)
            if self.attached:
                self._out += entry.frames
            if entry.tokens:
                self.waits.sent(entry.sequence_id, entry.tokens)
        for settled in bad:
            self._settle(settled)

    def _settle(self, settled: Settled) -> None:
        if settled.tokens:
            self.count -= len(settled.tokens)
            self._settled.append(settled)
