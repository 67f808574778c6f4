"""Clients of all endpoints at the processes of one service, which record every delivery."""

import base64
import contextlib
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final

import httpx
import pulsar
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from penstock.testing.server import Launched

from .service import OWNER_S, WAIT_S
from .waiting import until

Id = tuple[int, int, int, int]  # ledger, entry, partition, index in a batch


def id_of(text: str) -> Id:
    """A message id as REST and WebSocket write it, comparable with those of the binary protocol."""
    return _id(pulsar.MessageId.deserialize(base64.b64decode(text)))


def _id(of: Any) -> Id:
    return of.ledger_id(), of.entry_id(), of.partition(), of.batch_index()


WINDOW: Final = 20  # messages that a consumer has without an answer
MOVED_MAX: Final = 2 * WINDOW  # messages of a run that were on their way to another consumer


class Delivery:
    """One message that arrived at one consumer."""

    __slots__ = ("answered", "at_s", "consumer", "id", "key", "node", "number")

    def __init__(self, consumer: "Consumer", id: Id, key: str, number: int, answered: bool) -> None:
        self.at_s = time.monotonic()
        self.consumer = consumer
        self.node = consumer.node
        self.id = id
        self.key = key
        self.number = number
        self.answered = answered  # its acknowledgement had been answered before


class Deliveries:
    """Everything that arrived at the consumers of one subscription, in order. Values are `key/number`."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []
        self.stops: list[tuple[Launched, float, float]] = []  # of processes: from when to when
        self._answered: set[Id] = set()
        self._answered_at: dict[Id, float] = {}
        self._lock = threading.Lock()

    def arrived(self, consumer: "Consumer", id: Id, value: str) -> None:
        key, _, number = value.rpartition("/")
        with self._lock:
            self.all.append(Delivery(consumer, id, key, int(number), id in self._answered))

    def acknowledged(self, id: Id) -> None:
        """The acknowledgement was answered: it is durable."""
        with self._lock:
            self._answered.add(id)
            self._answered_at.setdefault(id, time.monotonic())

    def _was_stopped(self, one: Delivery) -> bool:
        """What a process had received before it was stopped may reach its clients after it continues."""
        return any(one.node is node and begin < one.at_s < end for node, begin, end in self.stops)

    def _was_on_its_way(self, one: Delivery) -> bool:
        """The next owner gave the message to this consumer, which did not have it before, and it was on its way while the
        acknowledgement of the consumer before was answered: it is among the next that came of its partition."""
        before = [other for other in self.all if other.consumer is one.consumer and other.at_s < one.at_s]
        since_s = self._answered_at[one.id]
        return (
            all(other.id != one.id for other in before)
            and sum(other.id[2] == one.id[2] and other.at_s > since_s for other in before) < WINDOW
        )

    def _history(self, id: Id) -> list[str]:
        return [
            f"{one.at_s:.2f} {one.consumer.name} {'again' if one.answered else ''}"
            for one in self.all
            if one.id == id
        ] + [f"answered {self._answered_at[id]:.2f}", *(f"stop {b:.2f} {e:.2f}" for _, b, e in self.stops)]

    @property
    def values(self) -> set[str]:
        with self._lock:
            return {f"{one.key}/{one.number}" for one in self.all}

    def wait_for(self, values: Collection[str]) -> None:
        """Wait until all of them came; nothing else may come."""
        wanted = set(values)
        until(lambda: self.values >= wanted, said=lambda: f"missing: {sorted(wanted - self.values)[:10]}")
        assert self.values == wanted

    @property
    def answered(self) -> int:
        return len(self._answered)

    def by_consumer(self) -> Counter["Consumer"]:
        with self._lock:
            return Counter(one.consumer for one in self.all)

    def keys(self) -> dict[str, set["Consumer"]]:
        """Which consumers got messages of a key."""
        found: defaultdict[str, set[Consumer]] = defaultdict(set)
        with self._lock:
            for one in self.all:
                found[one.key].add(one.consumer)
        return found

    def check(self, *, ordered: bool) -> None:
        """No message came after its acknowledgement was answered. `ordered`: none of a key came for the first time before its
        predecessors."""
        again = [one for one in self.all if one.answered and not self._was_stopped(one)]
        moved = [one for one in again if self._was_on_its_way(one)]
        late = [one for one in again if one not in moved] or moved[MOVED_MAX:]
        assert not late, (
            f"{len(again)} messages came after their acknowledgements were answered: {self._history(late[0].id)}"
        )
        if moved:
            print(f"{len(moved)} messages were on their way to another consumer as they were acknowledged")
        if not ordered:
            return
        seen: Counter[str] = Counter()
        for one in self.all:
            assert one.number <= seen[one.key], (
                f"{one.key}/{one.number} came to {one.consumer.name} before {one.key}/{seen[one.key]}"
            )
            seen[one.key] = max(seen[one.key], one.number + 1)


class Consumer(threading.Thread):
    """A consumer that acknowledges, and that goes to the next process if its connection ends.

    `refusals` are the errors of the server that are no lost connections: status or code, and text.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        nodes: Sequence[Launched],
        at: int,
        topic: str,
        subscription: str,
        type: str,
        deliveries: Deliveries,
        *,
        moves: bool = False,
    ) -> None:
        """`nodes` may change while it runs; it begins at the one of number `at`, and goes to others if it `moves`."""
        super().__init__(name=f"{self.kind}-{at}", daemon=True)
        self._nodes = nodes
        self._turns = itertools.cycle([*range(at, len(nodes)), *range(at)]) if moves else itertools.repeat(at)
        self._topic = topic
        self._subscription = subscription
        self._type = type
        self._deliveries = deliveries
        self._ending = threading.Event()
        self.ready = threading.Event()
        self.refusals: list[tuple[int, str]] = []
        self.early: list[
            str
        ] = []  # errors of acknowledgements that could have waited for the next owner of the partition
        self.failure: BaseException | None = None
        self.node: Launched | None = None  # where it is now

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self.node = self._nodes[next(self._turns)]
                self._consume(self.node)
                self._ending.wait(0.05)
        except BaseException as error:
            self.failure = error
            self.ready.set()

    def _consume(self, node: Launched) -> None:
        """Consume at one process, until the connection ends."""
        raise NotImplementedError

    def _refused(self, status: int, text: str) -> None:
        self.refusals.append((status, text))

    def wait_for_refusal(self) -> None:
        until(lambda: self.refusals, said=lambda: f"{self.name} is not refused")

    def end(self) -> None:
        self._ending.set()
        self.join(WAIT_S)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure


class SocketConsumer(Consumer):
    """Over WebSocket; acknowledgements are answered."""

    kind = "socket"
    ANSWER_S: Final = 0.2

    def _consume(self, node: Launched) -> None:
        url = (
            f"{node.ws}/ws/v2/consumer/persistent/public/default/{self._topic}/{self._subscription}"
            f"?subscriptionType={self._type}&subscriptionInitialPosition=Earliest&receiverQueueSize={WINDOW}"
        )
        waiting: dict[str, tuple[Id, float]] = {}
        try:
            with connect(url, compression=None, open_timeout=10, close_timeout=2, proxy=None) as socket:
                self.ready.set()
                while not self._ending.is_set():
                    try:
                        frame = json.loads(socket.recv(self.ANSWER_S))
                    except TimeoutError:
                        continue
                    if "context" in frame:
                        answered, sent_s = waiting.pop(frame["context"])
                        if frame["result"] != "ok":  # it may not be stored: all that is out comes again
                            self._refused(0, frame["result"])
                            if time.monotonic() - sent_s < OWNER_S:
                                self.early.append(frame["result"])
                            return
                        self._deliveries.acknowledged(answered)
                        continue
                    text = frame["messageId"]
                    arrived = id_of(text)
                    waiting[text] = arrived, time.monotonic()
                    self._deliveries.arrived(self, arrived, base64.b64decode(frame["payload"]).decode())
                    socket.send(json.dumps({"messageId": text, "context": text}))
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code != 1001:
                self._refused(closed.rcvd.code, closed.rcvd.reason)
        except InvalidStatus as refused:
            self._refused(refused.response.status_code, refused.response.body.decode())
        except (OSError, EOFError, TimeoutError):
            pass


class InstanceConsumer(Consumer):
    """A consumer instance of REST; every request goes to the process where it begins, until one fails."""

    kind = "instance"

    def _consume(self, node: Launched) -> None:
        base = f"{node.url}/topics/public/default/{self._topic}/subscription/{self._subscription}"
        with httpx.Client(timeout=10, trust_env=False) as http:
            try:
                wanted = {"subscription_type": self._type, "initial_position": "earliest"}
                options = {"receiver_queue_size": WINDOW, "consumer_timeout_ms": 5000}
                made = http.post(base, json={**wanted, **options})
                if made.status_code != 200:
                    self._refused(made.status_code, made.text)
                    return
                instance = f"{base}/consumer/{made.json()['id']}"
                self.ready.set()
                while not self._ending.is_set() and self._poll(http, instance):
                    pass
                http.delete(instance)
            except httpx.TransportError:
                pass

    def _poll(self, http: httpx.Client, instance: str) -> bool:
        polled = http.get(f"{instance}/messages", params={"timeout": 300, "max_messages": 10})
        if polled.status_code != 200:
            self._refused(polled.status_code, polled.text)
            return polled.status_code == 503
        messages = polled.json()["messages"]
        for message in messages:
            self._deliveries.arrived(self, id_of(message["messageId"]), message["value"])
        if not messages:
            return True
        ids = [message["messageId"] for message in messages]
        sent_s = time.monotonic()
        answer = http.post(f"{instance}/cursor", json={"messageIds": ids}, timeout=WAIT_S)
        errors: list[tuple[int, str]] = []
        if answer.status_code == 200:
            for text, result in zip(ids, answer.json()["messageIds"], strict=True):
                if result["error_code"] is None:
                    self._deliveries.acknowledged(id_of(text))
                else:
                    errors.append((result["error_code"], result["error"]))
        else:  # they may not be stored: all that is out comes again to another instance
            errors.append((answer.status_code, answer.text))
        for status, said in errors:
            self._refused(status, said)
            # An instance that expired before the request, as its process was stopped, is not found.
            if status != 404 and time.monotonic() - sent_s < OWNER_S:
                self.early.append(said)
        return not errors


class BinaryConsumer(Consumer):
    """Pulsar's client. Its acknowledgements are not answered, and it connects again by itself."""

    kind = "binary"
    TYPES: Final = {
        "Exclusive": pulsar.ConsumerType.Exclusive,
        "Shared": pulsar.ConsumerType.Shared,
        "Failover": pulsar.ConsumerType.Failover,
        "Key_Shared": pulsar.ConsumerType.KeyShared,
    }

    def _url(self, node: Launched) -> str:
        """By Pulsar's protocol, lookups lead to the owner of each partition."""
        return node.pulsar

    def _consume(self, node: Launched) -> None:
        client = pulsar.Client(
            self._url(node),
            operation_timeout_seconds=20,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            consumer = client.subscribe(
                f"persistent://public/default/{self._topic}",
                self._subscription,
                consumer_type=self.TYPES[self._type],
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=WINDOW,
            )
            self.ready.set()
            while not self._ending.is_set() and node.process.poll() is None:
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                self._deliveries.arrived(self, _id(message.message_id()), message.data().decode())
                consumer.acknowledge(message)
        except pulsar.PulsarException as refused:
            self._refused(0, str(refused))
        finally:
            client.close()


class AttachedConsumer(BinaryConsumer):
    """The same, but lookups over HTTP lead to the process that is asked, which attaches the consumer to the owner."""

    kind = "attached"

    def _url(self, node: Launched) -> str:
        return node.url


CONSUMERS: Final = (SocketConsumer, InstanceConsumer, BinaryConsumer, AttachedConsumer)


class Publisher(threading.Thread):
    """Publishes `key/0`, `key/1`, … one after the other over REST, each until it is answered with success."""

    def __init__(
        self, nodes: Sequence[Launched], at: int, topic: str, keys: Sequence[str], pause_s: float
    ) -> None:
        super().__init__(name=f"publisher-{at}", daemon=True)
        self._nodes = nodes
        self._at = at
        self._topic = topic
        self._keys = keys
        self._pause_s = pause_s
        self._ending = threading.Event()
        self.published: list[str] = []
        self.refusals: list[tuple[int, str]] = []

    def run(self) -> None:
        with httpx.Client(timeout=10, trust_env=False) as http:
            for number in itertools.count():
                for key in self._keys:
                    if self._ending.is_set():
                        return
                    self._publish(http, key, f"{key}/{number}")
                    self._ending.wait(self._pause_s)

    def _publish(self, http: httpx.Client, key: str, value: str) -> None:
        while True:
            node = self._nodes[self._at % len(self._nodes)]
            with contextlib.suppress(httpx.TransportError):
                url = f"{node.url}/topics/public/default/{self._topic}"
                answer = http.post(url, json={"messages": [{"key": key, "value": value}]})
                if answer.status_code == 200 and answer.json()["messageIds"][0]["error_code"] is None:
                    self.published.append(value)
                    return
                self.refusals.append((answer.status_code, answer.text))
            self._at += 1
            self._ending.wait(0.05)

    def end(self) -> list[str]:
        self._ending.set()
        self.join(WAIT_S)
        assert not self.is_alive(), f"{self.name} does not end"
        return self.published


def started(consumers: Sequence[Consumer]) -> Sequence[Consumer]:
    """Begin them side by side, and wait until all have subscribed."""
    for one in consumers:
        one.start()
    for one in consumers:
        assert one.ready.wait(WAIT_S), f"{one.name} does not subscribe: {one.refusals}"
        if one.failure is not None:
            raise one.failure
    return consumers


def ended(consumers: Sequence[Consumer]) -> None:
    for one in consumers:
        one._ending.set()
    for one in consumers:
        one.end()
