"""Clients of a server before a cluster while things fail, and the book of what they were answered.

One topic: two producers (WebSocket and REST), and a Shared subscription each for a consumer of WebSocket and one of REST.
Some messages are never acknowledged, so that what comes again can be told from what must not.
"""

import asyncio
import contextlib
import itertools
import json
from base64 import b64decode, b64encode
from collections import Counter
from typing import Any, Final, Protocol

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from penstock.model.message_id import MessageId
from tests.support.waiting import until_async

WINDOW: Final = 20  # messages without an answer
TOGETHER: Final = 5  # messages of one publish over HTTP
Place = tuple[int, int, int]  # ledger, entry, index in the batch

HELD: Final = 25  # one of so many entries is never acknowledged
PAUSE_S: Final = 0.1  # between the steps of a client: enough load to be hit, and no more
BROKEN: Final = (OSError, WebSocketException, httpx.TransportError)
ANSWER_S: Final = 150.0  # longer than a server waits for a broker: its namespace, its topic, its producer
SOCKET: Final[dict[str, Any]] = {
    "compression": None,
    "proxy": None,
    "ping_interval": None,
    "open_timeout": ANSWER_S,
}
FETCH: Final[dict[str, str | int]] = {"timeout": 500, "max_messages": 50, "encoding": "text"}
# Brokers write cursors at most once a second, and those that are dirty once a minute (managedLedgerCursorPositionFlushSeconds).
LATE_S: Final = 75.0
# Acknowledgements that come before a cursor has its ledger, which is created for the first of them, are answered, and lost
# when the topic is unloaded before it is there.
FIRST_S: Final = 10.0
BOUND_S: Final = 150.0  # for all to go on, and to come: a server may wait for the broker, and then clients for the next try


class Reader(Protocol):
    """Reads in a cluster itself, not through a server."""

    def messages(self, path: str) -> list[tuple[str, Place]]:
        """Every message of a topic, in its order."""

    def left(self, path: str, subscription: str, sure: Counter[str]) -> Counter[str]:
        """What a subscription has not acknowledged; `sure` are waited for."""


class Load:
    """`namespace` as `tenant/namespace`. `once`: it has deduplication, and the producers number their messages."""

    def __init__(self, url: str, namespace: str, topic: str, *, once: bool) -> None:
        self.url = url
        self.path = f"{namespace}/{topic}"
        self.once = once
        self.stored: dict[str, float] = {}  # when the receipt came
        self.sent: dict[str, float] = {}  # when it was sent first
        self.in_doubt: set[str] = (
            set()
        )  # may be stored twice: on its way in a fault, or sent again by the client
        self.delivered: dict[str, Counter[str]] = {"ws": Counter(), "rest": Counter()}
        self.acknowledged: dict[str, dict[Place, float]] = {"ws": {}, "rest": {}}  # when that was answered
        self.settled: dict[str, set[str]] = {
            "ws": set(),
            "rest": set(),
        }  # values that were acknowledged, or held back
        self.came_again: list[tuple[str, str]] = []
        self.refusals: Counter[tuple[str, int, int]] = Counter()  # of what, status, code
        # When acknowledgements were answered that a broker may know nothing of after it was killed, or unloaded the topic.
        self.forgotten: list[tuple[float, float]] = []
        self._instances: list[str] = []  # of the REST consumer
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- the whole

    async def __aenter__(self) -> "Load":
        work = [self._ws_producer(), self._rest_producer(), self._ws_consumer(), self._rest_consumer()]
        self._tasks = [asyncio.get_running_loop().create_task(one) for one in work]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def goes_on(self, count: int = 80) -> None:
        """Wait until every client has got so many messages further."""
        marks = [len(self._of(kind)) for kind in "wr"], [len(one) for one in self.acknowledged.values()]

        def further() -> bool:
            self._look()
            now = [len(self._of(kind)) for kind in "wr"], [len(one) for one in self.acknowledged.values()]
            return all(
                new >= old + count // 2
                for before, after in zip(marks, now, strict=True)
                for old, new in zip(before, after, strict=True)
            )

        try:
            await until_async(further, BOUND_S)
        except TimeoutError:
            raise AssertionError(f"it does not go on: {marks}, {self}") from None

    def _of(self, kind: str) -> list[str]:
        return [value for value in self.stored if value[0] == kind]

    def _look(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def __str__(self) -> str:
        consumed = {name: (len(self.delivered[name]), len(done)) for name, done in self.acknowledged.items()}
        return f"{self.path}: {len(self.stored)} of {len(self.sent)} stored, consumed {consumed}, {self.refusals}"

    async def stop(self) -> None:
        """Publish no more, and wait until everything is stored, delivered, and acknowledged as far as it is to be."""
        self._over.set()

        def done() -> bool:
            self._look()
            return all(task.done() for task in self._tasks[:2]) and all(
                self.stored.keys() <= self.delivered[name].keys()
                and self.delivered[name].keys() <= self.settled[name]
                for name in self.delivered
            )

        try:
            await until_async(done, BOUND_S)
        except TimeoutError:
            missing = {
                name: sorted(self.stored.keys() - got.keys())[:10] for name, got in self.delivered.items()
            }
            raise AssertionError(f"not everything came: {missing}, {self}") from None
        await self.__aexit__()

    # -- producers

    async def _ws_producer(self) -> None:
        numbers = itertools.count(0)
        pending: list[int] = []
        query = f"producerName={self.path.rpartition('/')[2]}-w&batchingEnabled=true"
        url = f"{self.url.replace('http', 'ws', 1)}/ws/v2/producer/persistent/{self.path}?{query}"
        while pending or not self._over.is_set():
            try:
                async with connect(url, **SOCKET) as socket:
                    full = len(pending) > 0  # the next ones when these have their answer
                    for number in pending:
                        self.in_doubt.add(f"w{number}")
                        await socket.send(self._frame(number))
                    while pending or not self._over.is_set():
                        while not full and len(pending) < WINDOW and not self._over.is_set():
                            number = next(numbers)
                            pending.append(number)
                            self.sent[f"w{number}"] = now()
                            await socket.send(self._frame(number))
                        answer = json.loads(await socket.recv())
                        if answer["result"] != "ok":
                            self.refusals["ws", 0, int(answer["result"].rpartition(":")[2])] += 1
                            break  # in order again
                        assert answer["context"] == str(pending[0]), answer
                        self.stored[f"w{pending.pop(0)}"] = now()
                        full = len(pending) > 0
                        if not full:
                            await asyncio.sleep(PAUSE_S)
            except BROKEN as error:
                self._refused("ws producer", error)
            await asyncio.sleep(PAUSE_S)

    def _frame(self, number: int) -> str:
        frame = {"payload": b64encode(b"w%d" % number).decode(), "context": str(number)}
        return json.dumps({**frame, "sequenceId": number} if self.once else frame)

    async def _rest_producer(self) -> None:
        name = f"{self.path.rpartition('/')[2]}-r"
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_S) as http:
            for first in itertools.count(0, TOGETHER):
                if self._over.is_set():
                    return
                numbers = list(range(first, first + TOGETHER))
                self.sent |= {f"r{number}": now() for number in numbers}
                while numbers:
                    messages = [
                        {"value": f"r{number}", **({"sequenceId": number} if self.once else {})}
                        for number in numbers
                    ]
                    body = {"messages": messages, **({"producer_name": name} if self.once else {})}
                    try:
                        answer = await http.post(f"/topics/{self.path}", json=body)
                    except BROKEN as error:
                        self._refused("publish", error)
                    else:
                        if answer.status_code == 200:
                            results = answer.json()["messageIds"]
                            good = [
                                number
                                for number, one in zip(numbers, results, strict=True)
                                if not one["error_code"]
                            ]
                            self.stored |= {f"r{number}": now() for number in good}
                            numbers = [number for number in numbers if number not in good]
                            for one in results:
                                if one["error_code"]:
                                    self.refusals["publish", 200, one["error_code"]] += 1
                        else:
                            self._answered("publish", answer)
                    self.in_doubt |= {f"r{number}" for number in numbers}
                    await asyncio.sleep(PAUSE_S)

    # -- consumers

    def _came(self, who: str, value: str, message_id: str) -> None:
        done = self.acknowledged[who].get(place(message_id))
        if done is not None and not self._may_be_forgotten(done):
            self.came_again.append((who, value))
        self.delivered[who][value] += 1

    def _done(self, who: str, message_id: str) -> None:
        self.acknowledged[who][place(message_id)] = now()

    async def _ws_consumer(self) -> None:
        query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest"
        url = f"{self.url.replace('http', 'ws', 1)}/ws/v2/consumer/persistent/{self.path}/ws?{query}"
        while True:
            try:
                async with connect(url, **SOCKET) as socket:
                    async for text in socket:
                        frame = json.loads(text)
                        if "payload" not in frame:
                            if frame["result"] == "ok":
                                self._done("ws", frame["context"])
                            else:
                                self.refusals["ws acknowledgement " + frame["result"], 0, 0] += 1
                                break  # not acknowledged: it comes again to the next consumer
                            continue
                        value = b64decode(frame["payload"]).decode()
                        self._came("ws", value, frame["messageId"])
                        message_id = frame["messageId"]
                        self.settled["ws"].add(value)
                        if not held(place(message_id)):
                            await socket.send(json.dumps({"messageId": message_id, "context": message_id}))
            except BROKEN as error:
                self._refused("ws consumer", error)
            await asyncio.sleep(PAUSE_S)

    async def _rest_consumer(self) -> None:
        subscription = f"/topics/{self.path}/subscription/rest"
        options = {"subscription_type": "Shared", "initial_position": "earliest"}
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_S) as http:
            while True:
                try:
                    made = await http.post(subscription, json=options)
                    if made.status_code == 200:
                        self._instances.append(made.json()["base_uri"])
                        await self._consume(http, self._instances[-1], f"{subscription}/cursor")
                    else:
                        self._answered("subscribe", made)
                except BROKEN as error:  # what the instance has comes when it is gone
                    self._refused("rest consumer", error)
                    for instance in self._instances:
                        with contextlib.suppress(*BROKEN):
                            await http.delete(instance)
                await asyncio.sleep(PAUSE_S)

    async def _consume(self, http: httpx.AsyncClient, instance: str, cursor: str) -> None:
        """Until the instance is gone. What was taken is acknowledged again until that is answered."""
        while True:
            got = await http.get(f"{instance}/messages", params=FETCH)
            if got.status_code != 200:
                self._answered("fetch", got)
                return
            taken = {one["messageId"]: one["value"] for one in got.json()["messages"]}
            for message_id, value in taken.items():
                self._came("rest", value, message_id)
            ids = [one for one in taken if not held(place(one))]
            self.settled["rest"] |= set(taken.values())
            while ids:
                answer = await http.post(cursor, json={"messageIds": ids})
                if answer.status_code != 200:
                    self._answered("acknowledge", answer)
                    if answer.status_code != 503:
                        return
                    continue
                for one in answer.json()["messageIds"]:
                    if not one["error_code"]:
                        self._done("rest", one["messageId"])
                ids = []
            await asyncio.sleep(PAUSE_S)

    # -- refusals

    def _refused(self, what: str, error: Exception) -> None:
        response = getattr(error, "response", None)
        self.refusals[what, getattr(response, "status_code", 0), 0] += 1

    def _answered(self, what: str, answer: httpx.Response) -> None:
        try:
            code = answer.json()["error_code"]
        except (ValueError, KeyError):
            code = 0
        self.refusals[what, answer.status_code, code] += 1

    # -- the comparison

    def check(self, reader: Reader) -> None:
        """Compare what the clients were answered with what the topic and its subscriptions have."""
        assert self.came_again == []
        for instance in self._instances:
            with contextlib.suppress(httpx.TransportError):  # of a process that is gone
                httpx.delete(instance, timeout=ANSWER_S)
        found = reader.messages(self.path)
        self._check_log([value for value, _ in found])
        for name, done in self.acknowledged.items():
            left = Counter(value for value, at in found if held(at))
            may_come = {value for value, at in found if at not in done or self._may_be_forgotten(done[at])}
            again = reader.left(self.path, name, left)
            more = again.keys() - left.keys() - may_come
            less = left - again
            assert (sorted(more), less) == ([], {}), name

    def _may_be_forgotten(self, when: float) -> bool:
        return any(since < when <= until for since, until in self.forgotten)

    def _check_log(self, found: list[str]) -> None:
        counts = Counter(found)
        assert not self.stored.keys() - counts.keys(), sorted(self.stored.keys() - counts.keys())
        twice = {value for value, count in counts.items() if count > 1}
        if self.once:
            assert not twice, sorted(twice)
            for kind in "wr":
                numbers = [int(value[1:]) for value in found if value[0] == kind]
                assert numbers == sorted(numbers)
        else:
            assert twice <= self.in_doubt, sorted(twice - self.in_doubt)

    # -- faults

    def crashed(self, at: float, until: float) -> None:
        """The broker was killed at a time of the loop's; its answers may be on their way until another one."""
        self.forgotten.append((at - LATE_S, until))

    def unloaded(self, at: float, until: float) -> None:
        """The broker unloaded the topic between two times of the loop's."""
        self.forgotten.append((at - FIRST_S, until))

    def begins(self) -> None:
        """Something fails from now on: what has no receipt now or is sent before `ends` may be stored twice."""
        self._before = set(self.stored)

    def ends(self) -> None:
        """It works again."""
        self.in_doubt |= self.sent.keys() - self._before


def held(at: Place) -> bool:
    """Whether a message is never acknowledged: with its whole entry, as brokers forget parts of one when they unload it."""
    return at[1] % HELD == 3


def place(message_id: str) -> Place:
    parsed = MessageId.parse(message_id)
    return parsed.ledger, parsed.entry, parsed.batch_index


def now() -> float:
    return asyncio.get_running_loop().time()


async def ask(http: httpx.AsyncClient, method: str, path: str, **more: Any) -> tuple[str, int, int, str]:
    """What a request is answered with: its path, the status, the code of the error, and why."""
    answer = await http.request(method, path, **more)
    error = answer.json() if answer.status_code >= 400 else {}
    return path, answer.status_code, error.get("error_code", 0), error.get("message", answer.text[:200])
