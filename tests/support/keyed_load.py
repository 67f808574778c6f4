"""Messages with keys, consumed by several servers at a time, and the book of what their consumers were given and answered."""

import asyncio
import itertools
import json
from base64 import b64decode
from collections import Counter
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect

from .cluster_load import ANSWER_S, BOUND_S, BROKEN, PAUSE_S, SOCKET
from .waiting import until_async

KEYS: Final = 32
PARTITIONS: Final = 4
TOGETHER: Final = 8  # messages of one publish
FURTHER: Final = 20  # messages that every consumer of a server gets until it has taken part
WINDOW: Final = 20  # messages that a consumer has without an answer


class Book:
    """What consumers of one subscription were given, and what they were answered."""

    def __init__(self, subscription: str, kind: str) -> None:
        self.subscription = subscription
        self.kind = kind
        self.values: set[str] = set()
        self.wrong: list[str] = []
        self.answers: Counter[str] = Counter()
        self._acknowledged: dict[str, str] = {}  # where, by message id
        self._next: Counter[str] = Counter()  # by key: the number that has not come

    def came(self, value: str, message_id: str, server: str) -> None:
        """A consumer at a server was given a message: `key:number`."""
        key, _, number = value.partition(":")
        if message_id in self._acknowledged:
            self.wrong.append(
                f"{value} ({message_id}) came again at {server}, acknowledged at {self._acknowledged[message_id]}"
            )
        if self.kind != "Shared" and int(number) > self._next[key]:
            self.wrong.append(f"{value} came before {key}:{self._next[key]} at {server}")
        self._next[key] = max(self._next[key], int(number) + 1)
        self.values.add(value)

    def answered(self, message_id: str, result: str, server: str) -> None:
        """An acknowledgement was answered by a server."""
        self.answers[result] += 1
        if result == "ok":
            self._acknowledged[message_id] = server


class Consuming:
    """A consumer of each subscription at one server."""

    def __init__(self, url: str, path: str, books: list[Book]) -> None:
        self.counts: Counter[str] = Counter()  # messages that came, by subscription
        self._url = url.replace("http", "ws", 1)
        self._path = path
        self._tasks = [asyncio.get_running_loop().create_task(self._consume(book)) for book in books]

    async def _consume(self, book: Book) -> None:
        query = (
            f"subscriptionType={book.kind}&subscriptionInitialPosition=Earliest&receiverQueueSize={WINDOW}"
        )
        url = f"{self._url}/ws/v2/consumer/persistent/{self._path}/{book.subscription}?{query}"
        while True:
            try:
                async with connect(url, **SOCKET) as socket:
                    async for text in socket:
                        frame = json.loads(text)
                        if "payload" not in frame:
                            book.answered(frame["context"], frame["result"], self._url)
                            continue
                        message_id = frame["messageId"]
                        book.came(b64decode(frame["payload"]).decode(), message_id, self._url)
                        self.counts[book.subscription] += 1
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
        """What came again, or out of order, by subscription: nothing."""
        wrong = {book.kind: book.wrong[:10] for book in self.books if book.wrong}
        assert not wrong, f"{wrong} in {self}"

    def __str__(self) -> str:
        came = {book.kind: (len(book.values), dict(book.answers)) for book in self.books}
        at = [dict(one.counts) for one in self._consuming]
        return f"{self.path}: {len(self.stored)} stored, came {came}, at {at}"
