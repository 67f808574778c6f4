"""What the clients of a run do."""

import asyncio
import itertools
import os
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.client.errors import OperationNotSupported, PulsarException

from .pace import Pace
from .peers import Load, Receipt, Receiver, Sender

STAMP_BYTES: Final = 16  # of a payload: which run it is of, and when it was due
REQUEST_TIMEOUT_MS: Final = 30_000
IDLE_S: Final = 30.0  # without a delivery when all is published: the rest will not come
TURN: Final = 64  # messages that a producer sends before receipts and others have their turn

Done = Callable[[float], None]  # called with the time at which a message was due

_stamp: Final = struct.Struct(">8sd")


class Payloads:
    """Payloads of a size, bytes that do not compress; each says when it was due."""

    def __init__(self, size: int) -> None:
        self._run = os.urandom(8)
        self._rest = os.urandom(max(0, size - STAMP_BYTES))
        self._size = size

    def at(self, due_s: float) -> bytes:
        """A payload."""
        return (_stamp.pack(self._run, due_s) + self._rest)[: self._size]

    def due_s(self, payload: bytes) -> float | None:
        """When a payload was due; None for one of somebody else."""
        if len(payload) < STAMP_BYTES:
            return None
        run, due_s = _stamp.unpack_from(payload)
        return float(due_s) if run == self._run else None


async def publish(load: Load, senders: list[Sender], payloads: Payloads, pace: Pace, done: Done) -> None:
    """Publish until the pace is over, and wait for the receipts; `done` is called for each with its time."""
    keys = itertools.cycle([f"key-{number}" for number in range(load.keys)]) if load.keys else None
    async with asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(_Publisher(sender, load.pending, pace, done).run(payloads, keys))


class _Publisher:
    """Publishes through one producer, without waiting for receipts as long as few enough are missing."""

    def __init__(self, sender: Sender, pending_max: int, pace: Pace, done: Done) -> None:
        self._sender = sender
        self._pending_max = pending_max
        self._pace = pace
        self._done = done
        self._pending = 0
        self._settled = asyncio.Event()

    async def run(self, payloads: Payloads, keys: Iterator[str] | None) -> None:
        pace, sent = self._pace, 0
        while True:
            await self._fewer_than(self._pending_max)  # with a rate the time that this takes is the message's
            due_s = await pace.next()
            if due_s is None:
                break
            pace.sending(due_s)
            options: dict[str, Any] = {} if keys is None else {"partition_key": next(keys)}
            self._pending += 1
            self._sender.send_async(payloads.at(due_s), self._callback(due_s), **options)
            sent += 1
            if not sent % TURN:
                await asyncio.sleep(0)
        await self._fewer_than(1)

    def _callback(self, due_s: float) -> Receipt:
        def settled(error: PulsarException | None, _: object) -> None:
            self._pending -= 1
            self._settled.set()
            if error is None:
                self._done(due_s)
            else:
                self._pace.failed(error)

        return settled

    async def _fewer_than(self, count: int) -> None:
        while self._pending >= count:
            self._settled.clear()
            await self._settled.wait()


async def request(load: Load, senders: list[Sender], payloads: Payloads, pace: Pace) -> None:
    """Send requests until the pace is over."""
    async with asyncio.TaskGroup() as tasks:
        for sender in senders:
            for _ in range(load.pending):
                tasks.create_task(_request(sender, payloads, pace))


async def _request(sender: Sender, payloads: Payloads, pace: Pace) -> None:
    while (due_s := await pace.next()) is not None:
        pace.sending(due_s)
        try:
            await sender.request(payloads.at(due_s), REQUEST_TIMEOUT_MS)
        except OperationNotSupported:
            raise  # nor the next one
        except (PulsarException, TimeoutError) as error:
            pace.failed(error)
        else:
            pace.done(due_s)


async def reply(receiver: Receiver) -> None:
    """Answer requests with their own payloads, for ever."""
    while True:
        message = await receiver.receive()
        answer = message.data() if message.is_request and not message.request_expired else None
        await receiver.acknowledge(message, answer)


class Deliveries:
    """What consumers receive of a run, acknowledged as it comes."""

    def __init__(self, payloads: Payloads, pace: Pace, done: Done) -> None:
        self._payloads = payloads
        self._pace = pace
        self._done = done
        self._count = 0
        self._expected: int | None = None
        self._complete = asyncio.Event()

    async def take(self, receiver: Receiver) -> None:
        """Receive for ever."""
        taken = 0
        while True:
            message = await receiver.receive()
            due_s = self._payloads.due_s(message.data())
            await receiver.acknowledge(message)
            if due_s is None:
                continue
            self._done(due_s)
            self._count += 1
            taken += 1
            if self._count == self._expected:
                self._complete.set()
            if not taken % TURN:
                await asyncio.sleep(0)

    async def all_of(self, expected: int, until_s: float | None = None) -> None:
        """Wait until so many have come, until a time, or until nothing comes any more."""
        self._expected = expected
        while self._count < expected and not self._pace.stopped:
            seen = self._count
            left_s = IDLE_S if until_s is None else min(IDLE_S, until_s - time.perf_counter())
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._complete.wait()
            except TimeoutError:
                if self._count == seen or (until_s is not None and time.perf_counter() >= until_s):
                    break
