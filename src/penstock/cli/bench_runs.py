"""The clients of `penstock bench`, and what they count.

With a rate the times at which messages are due are fixed before the run. The latency of a message counts from then, so that
a pause of the server shows in all messages that were due during it (leaving them out is called coordinated omission).
"""

import asyncio
import math
import os
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.client.access import Access
from penstock.client.aio import Client, Consumer, Producer
from penstock.client.authentication import Authentication, AuthenticationTLS, AuthenticationToken
from penstock.client.enums import ConsumerType, InitialPosition
from penstock.client.errors import OperationNotSupported, PulsarException

from .progress import Progress

WARM_S: Final = 1.0  # of the beginning, not counted
IDLE_S: Final = 30.0  # without a delivery after everything was published: the rest will not come
TIMEOUT_MS: Final = 30_000  # of a message without a receipt, and of a request
BACKLOG: Final = 100_000  # messages
FILLING: Final = 100  # messages of a batch of the backlog
TURN: Final = 64  # messages that a producer sends before other tasks have their turn
SUBSCRIPTION: Final = "penstock-bench"
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
STAMP: Final = struct.Struct(">8sd")  # of a payload: its run, and when it was due
_STEP: Final = math.log(1.01)  # between two buckets of latencies
_UNIT_S: Final = 1e-6

Done = Callable[[float], None]  # called with the time at which a message was due


class Plan(NamedTuple):
    """The measured run. The first bound that is reached ends it."""

    access: Access
    topic: str
    size: int = 100
    producers: int = 1
    consumers: int = 0
    pending: int = 1  # messages or requests of one producer without an answer
    batch: int = 1
    rate: float | None = None  # messages a second
    messages: int | None = None
    duration: float | None = None  # s
    partitions: int = 0

    @property
    def warm_s(self) -> float:
        """The beginning that is not counted."""
        return 0.0 if self.messages or self.duration is None else min(WARM_S, self.duration / 4)


class Latencies:
    """Counts times, each to within 1 %; the longest is exact."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_s = 0.0
        self.count = 0
        self.max_s = 0.0

    def record(self, time_s: float) -> None:
        """Count a time; one below 0, of clocks that differ, is 0."""
        self._counts[math.ceil(math.log(max(time_s, _UNIT_S) / _UNIT_S) / _STEP)] += 1
        self._sum_s += max(0.0, time_s)
        self.count += 1
        self.max_s = max(self.max_s, time_s)

    def percentile_s(self, percent: float) -> float:
        """The time that so many percent of the times do not exceed; 0 without times."""
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_UNIT_S * math.exp(bucket * _STEP), self.max_s)
        return self.max_s

    def summary(self) -> dict[str, float] | None:
        """Mean, percentiles and the longest, in ms; None without times."""
        if not self.count:
            return None
        found = {f"p{percent:g}": self.percentile_s(percent) for percent in PERCENTILES}
        times = {"mean": self._sum_s / self.count, **found, "max": self.max_s}
        return {name: round(time_s * 1000, 3) for name, time_s in times.items()}


class Pace:
    """One run: says when each message is due, and counts the outcomes."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        self.stopped: int = 0  # the signal that stopped it
        self.taken = 0  # messages whose sending was begun
        self.latencies = Latencies()
        self.count = 0
        self.errors = 0
        self.error = ""
        self.cpu_share = 0.0
        self.begin()

    def begin(self, *, warm: bool = True) -> None:
        """The run begins now: everything is connected. `warm`: its beginning is not counted."""
        self.begin_s = time.perf_counter()
        self._counted_from_s = self.begin_s + (self._plan.warm_s if warm else 0.0)
        self._last_s = self._counted_from_s
        self._cpu_s = time.process_time()

    def finish(self) -> None:
        """The run is over; closing connections does not count."""
        taken_s = time.perf_counter() - self.begin_s
        self.cpu_share = (time.process_time() - self._cpu_s) / max(1e-9, taken_s)

    def stop(self, number: int) -> None:
        """Send nothing more, for a signal."""
        self.stopped = number

    @property
    def over(self) -> bool:
        """Whether all messages are sent."""
        plan = self._plan
        if self.stopped or (plan.messages is not None and self.taken >= plan.messages):
            return True
        return plan.duration is not None and time.perf_counter() >= self.begin_s + plan.duration

    async def next(self) -> float | None:
        """Wait until a message is due, and take it; its time (s), or None at the end."""
        plan = self._plan
        if self.over:
            return None
        if not plan.rate:
            self.taken += 1
            return time.perf_counter()
        due_s = self.begin_s + self.taken / plan.rate
        if plan.duration is not None and due_s >= self.begin_s + plan.duration:
            return None
        self.taken += 1
        if (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        return due_s

    def done(self, due_s: float) -> None:
        """The outcome of a message that was due then is known now."""
        if due_s >= self._counted_from_s:
            self.latencies.record(time.perf_counter() - due_s)
            self.arrived(due_s)

    def arrived(self, due_s: float) -> None:
        """A message was received; how long it waited in the backlog does not count."""
        self.count += 1
        self._last_s = time.perf_counter()
        self._progress.add(1)

    def failed(self, error: object) -> None:
        """A message failed."""
        self.errors += 1
        self.error = self.error or (str(error) or type(error).__name__)

    @property
    def seconds(self) -> float:
        """From when messages count until the last one was done."""
        return self._last_s - self._counted_from_s


class Payloads:
    """Payloads of a size, bytes that do not compress; each says when it was due."""

    def __init__(self, size: int) -> None:
        self._run = os.urandom(8)
        self._rest = os.urandom(max(0, size - STAMP.size))

    def at(self, due_s: float) -> bytes:
        """A payload."""
        return STAMP.pack(self._run, due_s) + self._rest

    def due_s(self, payload: bytes) -> float | None:
        """When a payload was due; None for one of another run."""
        run, due_s = STAMP.unpack_from(payload) if len(payload) >= STAMP.size else (b"", 0.0)
        return float(due_s) if run == self._run else None


class Run:
    """The clients of a run and what they do."""

    def __init__(self, client: Client, plan: Plan, pace: Pace) -> None:
        self._client = client
        self._plan = plan
        self._pace = pace
        self._payloads = Payloads(plan.size)
        self._received = 0
        self._arrived = asyncio.Event()

    async def publish(self) -> None:
        """From due to stored."""
        producers = await self._producers(self._plan.batch)
        self._pace.begin()
        await self._publish_all(producers, self._pace, self._pace.done)
        self._pace.finish()

    async def consume(self) -> None:
        """From due to received with a rate; else how fast a backlog is received."""
        plan, pace = self._plan, self._pace
        if plan.rate:
            consumers, producers = await self._consumers(), await self._producers(plan.batch)
            pace.begin()
            async with _beside([self._take(one, pace.done) for one in consumers]):
                await self._publish_all(producers, pace, lambda _: None)
                await self._all_of(pace.taken - pace.errors, None)
                pace.finish()
            return
        for consumer in await self._consumers():
            await consumer.close()
        filling = Pace(plan._replace(messages=plan.messages or BACKLOG), Progress("", shown=False))
        producers = await self._producers(max(plan.batch, FILLING))
        await self._publish_all(producers, filling, lambda _: None, until=pace)
        pace.errors, pace.error = filling.errors, filling.error
        pace.begin(warm=False)
        consumers = await self._consumers()
        until_s = None if plan.duration is None else time.perf_counter() + plan.duration
        async with _beside([self._take(one, pace.arrived) for one in consumers]):
            await self._all_of(filling.taken - filling.errors, until_s)
            pace.finish()

    async def request(self) -> None:
        """From due to the reply."""
        consumers, producers = await self._consumers(), await self._producers(1)
        self._pace.begin()
        async with _beside([_reply(one) for one in consumers]):
            async with asyncio.TaskGroup() as tasks:
                for producer in producers * self._plan.pending:
                    tasks.create_task(self._request(producer))
            self._pace.finish()

    async def _producers(self, batch: int) -> list[Producer]:
        return [
            await self._client.create_producer(
                self._plan.topic,
                batching_enabled=batch > 1,
                batching_max_messages=batch,
                batching_max_publish_delay_ms=1,
                max_pending_messages=self._plan.pending + 1,
                send_timeout_millis=TIMEOUT_MS,
            )
            for _ in range(self._plan.producers)
        ]

    async def _consumers(self) -> list[Consumer]:
        kind = ConsumerType.Exclusive if self._plan.consumers == 1 else ConsumerType.Shared
        return [
            await self._client.subscribe(
                self._plan.topic, SUBSCRIPTION, consumer_type=kind, initial_position=InitialPosition.Latest
            )
            for _ in range(self._plan.consumers)
        ]

    async def _publish_all(
        self, producers: list[Producer], pace: Pace, done: Done, until: Pace | None = None
    ) -> None:
        """Publish until `pace` is over or `until` was stopped, and wait for the receipts."""
        async with asyncio.TaskGroup() as tasks:
            for producer in producers:
                tasks.create_task(self._publish(producer, pace, done, until))

    async def _publish(self, producer: Producer, pace: Pace, done: Done, until: Pace | None) -> None:
        free = asyncio.Semaphore(self._plan.pending)

        def settled(due_s: float, error: PulsarException | None, _: object) -> None:
            free.release()
            if error is None:
                done(due_s)
            else:
                pace.failed(error)

        sent = 0
        while until is None or not until.stopped:
            await free.acquire()  # with a rate the time that this takes is the message's
            due_s = await pace.next()
            if due_s is None:
                free.release()
                break
            producer.send_async(self._payloads.at(due_s), partial(settled, due_s))
            sent += 1
            if not sent % TURN:
                await asyncio.sleep(0)
        for _ in range(self._plan.pending):
            await free.acquire()

    async def _request(self, producer: Producer) -> None:
        while (due_s := await self._pace.next()) is not None:
            try:
                await producer.request(self._payloads.at(due_s), TIMEOUT_MS)
            except OperationNotSupported:
                raise
            except (PulsarException, TimeoutError) as error:
                self._pace.failed(error)
            else:
                self._pace.done(due_s)

    async def _take(self, consumer: Consumer, done: Done) -> None:
        """Receive and acknowledge without end."""
        while True:
            message = await consumer.receive()
            due_s = self._payloads.due_s(message.data())
            await consumer.acknowledge(message)
            if due_s is None:
                continue
            done(due_s)
            self._received += 1
            self._arrived.set()
            if not self._received % TURN:
                await asyncio.sleep(0)

    async def _all_of(self, expected: int, until_s: float | None) -> None:
        """Wait until so many were received, until a time, or until no more come."""
        while self._received < expected and not self._pace.stopped:
            self._arrived.clear()
            left_s = IDLE_S if until_s is None else min(IDLE_S, until_s - time.perf_counter())
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._arrived.wait()
            except TimeoutError:
                return


async def _reply(consumer: Consumer) -> None:
    """Answer requests with their own payloads without end."""
    while True:
        message = await consumer.receive()
        answer = message.data() if message.is_request and not message.request_expired else None
        await consumer.acknowledge(message, answer)


@asynccontextmanager
async def _beside(works: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Tasks that are cancelled at the end of the context; a failure of one ends it."""
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in made:
                task.cancel()


async def run(name: str, plan: Plan, pace: Pace) -> None:
    """What `Run` does under that name, with clients of the server. Raises PulsarException, in a group or not."""
    access = plan.access
    authentication: Authentication | None = None
    if access.bearer():
        authentication = AuthenticationToken(access.bearer)
    elif access.cert_file:
        authentication = AuthenticationTLS(access.cert_file, access.key_file or access.cert_file)
    client = Client(access.url, authentication, ssl_context=access.tls())
    try:
        clients = Run(client, plan, pace)
        await {"publish": clients.publish, "consume": clients.consume, "request": clients.request}[name]()
    finally:
        await client.close()
