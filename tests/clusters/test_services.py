"""Three processes before a real cluster are one service: what a client is answered does not depend on the process that it asked."""

import base64
import contextlib
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from tests.support.service import WAIT_S, Service
from tests.support.service_clients import (
    CONSUMERS,
    BinaryConsumer,
    Consumer,
    Deliveries,
    InstanceConsumer,
    SocketConsumer,
    ended,
    started,
)
from tests.support.workers import Replier

MESSAGES = 120
KEYS = 12


@pytest.fixture(params=["kafka", "pulsar"])
def three(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(f"{request.param}_service")
    return found


def publish(three: Service, topic: str, first: int = 0, count: int = MESSAGES) -> set[str]:
    """Messages of all keys, each in its own entry and at the next process."""
    values = [f"k{key}/{number}" for number in range(first, first + count // KEYS) for key in range(KEYS)]
    for at, value in enumerate(values):
        three.publish(at % 3, topic, value)
    return set(values)


def subscribe(
    three: Service,
    topic: str,
    type: str,
    deliveries: Deliveries,
    kinds: Sequence[type[Consumer]] = CONSUMERS,
    subscription: str = "s",
) -> list[Consumer]:
    """A consumer of each kind at each process."""
    return [kind(three.nodes, at, topic, subscription, type, deliveries) for kind in kinds for at in range(3)]


@pytest.mark.parametrize("partitions", [1, 2])
def test_shared_messages_are_spread_over_the_consumers_of_all_processes(
    three: Service, partitions: int
) -> None:
    topic, deliveries = three.new_topic(partitions), Deliveries()
    consumers = started(subscribe(three, topic, "Shared", deliveries))
    sent = publish(three, topic)
    deliveries.wait_for(sent)
    counts = deliveries.by_consumer()
    ended(consumers)
    assert set(counts) == set(consumers), {one.name: counts[one] for one in consumers}
    deliveries.check(ordered=False)
    assert not [one.refusals for one in consumers if one.refusals]


def test_a_key_has_one_consumer_in_the_service(three: Service) -> None:
    topic, deliveries = three.new_topic(2), Deliveries()
    consumers = started(subscribe(three, topic, "Key_Shared", deliveries))
    sent = publish(three, topic)
    deliveries.wait_for(sent)
    ended(consumers)
    assert all(len(found) == 1 for found in deliveries.keys().values()), deliveries.keys()
    assert len(deliveries.by_consumer()) > 1
    deliveries.check(ordered=True)


def test_one_consumer_of_failover_is_active_and_the_next_one_goes_on(three: Service) -> None:
    topic, deliveries = three.new_topic(), Deliveries()
    waiting = list(started(subscribe(three, topic, "Failover", deliveries)))
    sent: set[str] = set()
    while waiting:
        count = len(deliveries.all)
        sent |= publish(three, topic, len(sent) // KEYS, 2 * KEYS)
        deliveries.wait_for(sent)
        (active,) = {one.consumer for one in deliveries.all[count:]}
        active.end()
        waiting.remove(active)
    deliveries.check(ordered=True)


def test_one_exclusive_consumer_is_admitted_in_the_service(three: Service) -> None:
    topic, deliveries = three.new_topic(), Deliveries()
    sent: set[str] = set()
    for kind, at in ((SocketConsumer, 0), (BinaryConsumer, 1), (InstanceConsumer, 2)):
        (first,) = started([kind(three.nodes, at, topic, "s", "Exclusive", deliveries)])
        others = subscribe(three, topic, "Exclusive", deliveries)
        for one in others:
            one.start()
        for one in others:
            one.wait_for_refusal()
        sent |= publish(three, topic, len(sent) // KEYS, 2 * KEYS)
        deliveries.wait_for(sent)
        ended(others)
        first.end()
        assert {refused[0] for one in others for refused in one.refusals} <= {0, 409}, others[0].refusals
        assert {one.consumer for one in deliveries.all[-2 * KEYS :]} == {first}
    deliveries.check(ordered=True)


class Asked:
    """Administration of one subscription, each time through the next process."""

    def __init__(self, three: Service, topic: str) -> None:
        self._nodes = itertools.cycle(three.nodes)
        self._topic = topic

    def admin(self, method: str, path: str, **more: Any) -> httpx.Response:
        base = f"{next(self._nodes).url}/admin/v2/persistent/public/default/{self._topic}"
        return httpx.request(method, f"{base}{path}", timeout=WAIT_S, **more)

    def rest(self, method: str, path: str, **more: Any) -> httpx.Response:
        base = f"{next(self._nodes).url}/topics/public/default/{self._topic}/subscription/s"
        return httpx.request(method, f"{base}{path}", timeout=WAIT_S, **more)

    def shown(self) -> dict[str, Any]:
        """The statistics of the subscription at the next process."""
        answer = self.admin("GET", "/stats")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["subscriptions"]["s"]
        return found

    def mark(self) -> int:
        """The offset up to which the next process says that everything is acknowledged."""
        answer = self.rest("GET", "/cursor")
        assert answer.status_code == 200, answer.text
        found: int = answer.json()["cursor"]["mark_delete_offset"]
        return found


def test_any_process_acknowledges_seeks_shows_and_deletes(three: Service) -> None:
    """Each step through all three processes: one of them owns the topic, one has the instance, one has neither."""
    topic = three.new_topic()
    publish(three, topic, 0, 3 * KEYS)
    asked = Asked(three, topic)
    wanted = {"subscription_type": "Shared", "initial_position": "earliest"}
    instance = f"/consumer/{asked.rest('POST', '', json=wanted).json()['id']}"
    taken: list[str] = []
    while len(taken) < 3 * KEYS:
        polled = asked.rest("GET", f"{instance}/messages", params={"timeout": 10_000, "max_messages": 10})
        assert polled.status_code == 200, polled.text
        taken += [message["messageId"] for message in polled.json()["messages"]]
    for count, number in enumerate(range(0, 30, 10), 1):
        ids = taken[number : number + 10]
        answer = asked.rest("POST", f"{instance}/cursor", json={"messageIds": ids})
        assert [one["error_code"] for one in answer.json()["messageIds"]] == [None] * 10, answer.text
        for _ in range(3):
            assert asked.shown()["msgBacklog"] == 36 - 10 * count
            assert asked.mark() == 10 * count - 1
    for number in range(3):
        answer = asked.rest("POST", "/cursor", json={"type": "seek", "messageIds": [taken[number]]})
        assert answer.status_code == 200, answer.text
        assert asked.mark() == number
        again: list[str] = []
        while len(again) < 35 - number:
            polled = asked.rest(
                "GET", f"{instance}/messages", params={"timeout": 10_000, "max_messages": 100}
            )
            assert polled.status_code == 200, polled.text
            again += [message["messageId"] for message in polled.json()["messages"]]
        assert again == taken[number + 1 :]
    for number in range(3):
        assert asked.admin("POST", "/subscription/s/skip/1").status_code == 204
        assert asked.mark() == 3 + number
    busy = [asked.admin("DELETE", "/subscription/s") for _ in range(3)]
    # Of Pulsar the brokers' own answer is passed on.
    assert {answer.status_code for answer in busy} in ({409}, {412}), busy[0].text
    # Before Pulsar a consumer that is disconnected comes back, and begins the subscription again.
    assert asked.rest("DELETE", instance).status_code == 204
    for _ in range(3):
        assert asked.admin("DELETE", "/subscription/s", params={"force": True}).status_code == 204
        for _ in range(3):
            assert "s" not in asked.admin("GET", "/subscriptions").json()
        position = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        assert asked.admin("PUT", "/subscription/s", json=position).status_code == 204
        for _ in range(3):
            assert "s" in asked.admin("GET", "/subscriptions").json()


def test_a_subscription_opens_within_200_ms_at_any_process(three: Service) -> None:
    """The median of several, where the owner is known: the machine is busy."""
    topic, deliveries = three.new_topic(), Deliveries()
    ended(started(subscribe(three, topic, "Shared", deliveries, [SocketConsumer])))
    for at in range(3):
        took = []
        for number in range(7):
            consumer = SocketConsumer(three.nodes, at, topic, f"s{number}", "Shared", deliveries)
            began = time.monotonic()
            started([consumer])
            took.append(time.monotonic() - began)
            consumer.end()
        assert sorted(took)[len(took) // 2] < 0.2, took


def test_replies_cross_processes(three: Service) -> None:
    topic = three.new_topic(2)
    with contextlib.ExitStack() as stack:
        for at in (0, 1):
            replier = Replier(three.nodes[at].url, topic)
            stack.callback(replier.socket.close)
        for number in range(12):
            path = f"/topics/public/default/{topic}/request?timeout=30000"
            text = "error" if number % 4 == 3 else f"hello {number}"
            answer = three.ask(number % 3, "POST", path, json={"value": text[::-1]})
            assert base64.b64decode(answer["replyContent"]).decode() == text
            assert answer["isErrorResult"] is (text == "error")


def test_processes_publish_at_once_as_one_producer(three: Service) -> None:
    topic, deliveries = three.new_topic(2), Deliveries()
    consumers = started(subscribe(three, topic, "Shared", deliveries, [SocketConsumer]))
    sent: set[str] = set()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(three.producer(at, topic, "k0/0", name="one")) for at in range(3)]
        for number in range(1, 5):
            for at, socket in enumerate(sockets):
                by_socket, by_rest = f"k{at}/{number}", f"k{at + 3}/{number}"
                socket.send(json.dumps({"payload": base64.b64encode(by_socket.encode()).decode()}))
                body = {"producer_name": "one", "messages": [{"value": by_rest}]}
                answer = three.ask(at, "POST", f"/topics/public/default/{topic}", json=body)
                assert answer["messageIds"][0]["error_code"] is None, answer
                assert json.loads(socket.recv(WAIT_S))["result"] == "ok"
                sent |= {by_socket, by_rest}
        deliveries.wait_for({"k0/0", *sent})
    ended(consumers)
    assert len(deliveries.all) == 3 + len(sent)
