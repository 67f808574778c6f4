"""Messages with keys, consumed by several servers at a time, and the book of what their consumers were given and answered."""

import asyncio
import itertools
import json
from base64 import b64decode
from collections import Counter
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect

from .cluster_load import ANSWER_S, BOUND_S, BROKEN, PAUSE_S, SOCKET, now
from .waiting import until_async

KEYS: Final = 32
PARTITIONS: Final = 4
TOGETHER: Final = 8  # messages of one publish
FURTHER: Final = 20  # messages that every consumer of a server gets until it has taken part
WINDOW: Final = 20  # messages that a consumer has without an answer
OWNER_S: Final = 20.0  # an acknowledgement waits longer for the next owner of a partition
ROUND_TRIPS: Final = 20  # to a server, within which comes what was sent to it before
TRIP_PAUSE_S: Final = 0.02


class Book:
    """What consumers of one subscription were given, and what they were answered."""

    def __init__(self, subscription: str, kind: str) -> None:
        self.subscription = subscription
        self.kind = kind
        self.values: set[str] = set()
        self.wrong: list[str] = []
        self.answers: Counter[str] = Counter()
        self.late = 0  # messages that were on their way to another consumer as they were acknowledged
        self._acknowledged: dict[str, Answered] = {}  # by message id
        self._given: set[tuple[str, Consuming]] = set()
        self._next: Counter[str] = Counter()  # by key: the number that has not come
        self._consuming: list[Consuming] = []
        self._gave_up: dict[Consuming, float] = {}  # when it last had waited for an owner in vain

    def joins(self, one: "Consuming") -> None:
        """A consumer of another server takes part."""
        self._consuming.append(one)

    def came(self, value: str, message_id: str, to: "Consuming") -> None:
        """A consumer was given a message: `key:number`."""
        key, _, number = value.partition(":")
        answered, first = self._acknowledged.get(message_id), (message_id, to) not in self._given
        if answered is not None and not (first and answered.may_still_come(to)):
            self.wrong.append(
                f"{value} ({message_id}) came again at {to.url}, acknowledged at {answered.at.url}"
            )
        elif answered is not None:
            self.late += 1
            answered.came(to)
        if self.kind != "Shared" and int(number) > self._next[key]:
            self.wrong.append(f"{value} came before {key}:{self._next[key]} at {to.url}")
        self._next[key] = max(self._next[key], int(number) + 1)
        self.values.add(value)
        self._given.add((message_id, to))

    def answered(self, message_id: str, result: str, by: "Consuming", after_s: float) -> None:
        """An acknowledgement was answered; with an error only if no owner of a partition came in time."""
        self.answers[result] += 1
        if result != "ok" and after_s >= OWNER_S:
            self._gave_up[by] = now()
        elif result != "ok" and now() - self._gave_up.get(by, -OWNER_S) > OWNER_S:  # else others went with it
            self.wrong.append(
                f"{message_id} was answered with an error at {by.url} after {after_s:.1f} s: {result}"
            )
        if result == "ok" and message_id not in self._acknowledged:
            self._acknowledged[message_id] = Answered(by, self._consuming)


class Answered:
    """An acknowledgement with success, and which consumers may still be given the message.

    As a partition moves, the next owner gives messages to other consumers that it has not heard of. One that it sent before the
    acknowledgement arrived is with its consumer within a few round trips of the answer: it is in the memory of the consumer's server,
    or on a connection to it; a server that is stopped meanwhile has it when it continues. It comes once, and at no consumer that had it.
    """

    def __init__(self, at: "Consuming", others: list["Consuming"]) -> None:
        self.at = at
        self._until = {one: one.round_trips + ROUND_TRIPS for one in others if one is not at}

    def may_still_come(self, to: "Consuming") -> bool:
        return to.round_trips <= self._until.get(to, -1)

    def came(self, to: "Consuming") -> None:
        """No other copy may come."""
        self._until.pop(to, None)


class Consuming:
    """A consumer of each subscription at one server."""

    def __init__(self, url: str, path: str, books: list[Book]) -> None:
        self.counts: Counter[str] = Counter()  # messages that came, by subscription
        self.round_trips = 0  # to the server and back, one after the other
        self.url = url.replace("http", "ws", 1)
        self._path = path
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._consume(book)) for book in books]
        self._tasks.append(loop.create_task(self._go_there()))
        for book in books:
            book.joins(self)

    async def _go_there(self) -> None:
        async with httpx.AsyncClient(base_url=self.url.replace("ws", "http", 1), timeout=None) as http:
            while True:
                try:
                    await http.get("/ping")
                    self.round_trips += 1
                except BROKEN:
                    pass
                await asyncio.sleep(TRIP_PAUSE_S)

    async def _consume(self, book: Book) -> None:
        query = (
            f"subscriptionType={book.kind}&subscriptionInitialPosition=Earliest&receiverQueueSize={WINDOW}"
        )
        url = f"{self.url}/ws/v2/consumer/persistent/{self._path}/{book.subscription}?{query}"
        while True:
            try:
                async with connect(url, **SOCKET) as socket:
                    sent: dict[str, float] = {}
                    async for text in socket:
                        frame = json.loads(text)
                        if "payload" not in frame:
                            after_s = now() - sent[frame["context"]]
                            book.answered(frame["context"], frame["result"], self, after_s)
                            continue
                        message_id = frame["messageId"]
                        book.came(b64decode(frame["payload"]).decode(), message_id, self)
                        self.counts[book.subscription] += 1
                        sent[message_id] = now()
                        await socket.send(json.dumps({"messageId": message_id, "context": message_id}))
            except BROKEN:
                pass  # its server is gone, or not there yet
            await asyncio.sleep(PAUSE_S)

    def look(self) -> None:
        """Raise what a consumer failed with."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def leave(self) -> None:
        """Close the sockets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class KeyedLoad:
    """One topic with partitions and a subscription of each type. `url` is of the server that stays."""

    def __init__(self, url: str, topic: str) -> None:
        self.path = f"public/default/{topic}"
        self.books = [Book(f"{topic}-{kind}", kind) for kind in ("Shared", "Key_Shared", "Failover")]
        self.stored: set[str] = set()
        self.url = url
        self._over = asyncio.Event()
        self._consuming: list[Consuming] = []
        self._producing: asyncio.Task[None]

    async def __aenter__(self) -> "KeyedLoad":
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_S) as http:
            made = await http.put(f"/admin/v2/persistent/{self.path}/partitions", json=PARTITIONS)
            assert made.status_code == 204, made.text
        self._producing = asyncio.get_running_loop().create_task(self._produce())
        await self.takes_part(self.consume(self.url))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._producing.cancel()
        for one in self._consuming:
            await one.leave()

    def consume(self, url: str) -> Consuming:
        """Consume at a server, too."""
        self._consuming.append(Consuming(url, self.path, self.books))
        return self._consuming[-1]

    async def _produce(self) -> None:
        values = (f"k{number % KEYS}:{number // KEYS}" for number in itertools.count())
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_S) as http:
            while not self._over.is_set():
                some = list(itertools.islice(values, TOGETHER))
                body = {"messages": [{"key": one.partition(":")[0], "value": one} for one in some]}
                answer = await http.post(f"/topics/{self.path}", json=body)
                assert answer.status_code == 200, answer.text
                assert not any(one["error_code"] for one in answer.json()["messageIds"]), answer.text
                self.stored.update(some)
                await asyncio.sleep(PAUSE_S)

    # -- waiting

    async def takes_part(self, one: Consuming) -> None:
        """Wait until each consumer of a server got some messages."""
        before = one.counts.copy()
        await self._until(
            lambda: all(
                one.counts[book.subscription] >= before[book.subscription] + FURTHER for book in self.books
            )
        )

    async def all_came(self) -> None:
        """Wait until each subscription has delivered what is stored now."""
        stored = set(self.stored)
        await self._until(lambda: all(stored <= book.values for book in self.books))

    async def stop(self) -> None:
        """Publish no more, and wait until everything came."""
        self._over.set()
        await self._producing
        await self.all_came()

    async def _until(self, holds: Any) -> None:
        def looked() -> bool:
            if self._producing.done():
                self._producing.result()
            for one in self._consuming:
                one.look()
            return bool(holds())

        try:
            await until_async(looked, BOUND_S)
        except TimeoutError:
            raise AssertionError(f"it does not go on: {self}") from None

    def check(self) -> None:
        """What came again, or out of order, and which acknowledgements were refused, by subscription: nothing."""
        wrong = {book.kind: book.wrong[:10] for book in self.books if book.wrong}
        assert not wrong, f"{wrong} in {self}"

    def __str__(self) -> str:
        came = {book.kind: (len(book.values), dict(book.answers), f"{book.late} late") for book in self.books}
        at = [dict(one.counts) for one in self._consuming]
        return f"{self.path}: {len(self.stored)} stored, came {came}, at {at}"
