"""Batches that are acknowledged in part, and messages that are acknowledged where others have them, before a real broker."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import websocket
from tests.support.pulsar_broker import PulsarCluster
from tests.support.pulsar_secure import SecureCluster

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import launch, running

WAIT_S: Final = 60
WAIT_MS: Final = 30_000
VALUES: Final = [f"m{number}" for number in range(6)]


class Rest:
    """A server, and one topic and subscription there."""

    def __init__(self, http: httpx.Client, ws: str, topic: str) -> None:
        self.http = http
        self.topic = topic
        self._ws = ws

    def publish(self, values: Sequence[str]) -> list[str]:
        """As one batch."""
        messages = [{"value": value} for value in values]
        answer = self.http.post(f"/topics/{self.topic}", json={"messages": messages})
        assert answer.status_code == 200, answer.text
        return [one["messageId"] for one in answer.json()["messageIds"]]

    def subscribe(self, kind: str = "Shared", **more: Any) -> str:
        """The id of a consumer instance."""
        body = {"initial_position": "earliest", "subscription_type": kind, **more}
        made = self.http.post(f"/topics/{self.topic}/subscription/s", json=body)
        assert made.status_code == 200, made.text
        return str(made.json()["id"])

    def fetch(self, instance: str, count: int) -> dict[str, str]:
        """The next messages, so many: ids by values."""
        found: dict[str, str] = {}
        url = f"/topics/{self.topic}/subscription/s/consumer/{instance}/messages"
        while len(found) < count:
            answer = self.http.get(url, params={"timeout": WAIT_MS, "max_messages": count - len(found)})
            messages = answer.json()["messages"]
            assert messages, f"no more than {found}"
            found |= {one["value"]: one["messageId"] for one in messages}
        return found

    def acknowledge(self, ids: Sequence[str]) -> list[int | None]:
        """Their error codes."""
        answer = self.http.post(f"/topics/{self.topic}/subscription/s/cursor", json={"messageIds": ids})
        assert answer.status_code == 200, answer.text
        return [one["error_code"] for one in answer.json()["messageIds"]]

    def leave(self, instance: str) -> None:
        path = f"/topics/{self.topic}/subscription/s/consumer/{instance}"
        assert self.http.delete(path).status_code == 204

    def socket(self, kind: str) -> websocket.WebSocket:
        query = f"subscriptionInitialPosition=Earliest&subscriptionType={kind}"
        path = f"/ws/v2/consumer/persistent/{self.topic}/s?{query}"
        end = time.monotonic() + WAIT_S
        while True:
            try:
                return websocket.create_connection(self._ws + path, timeout=WAIT_S)
            except websocket.WebSocketBadStatusException:  # the one before is just leaving
                if time.monotonic() > end:
                    raise


@pytest.fixture
def topic() -> str:
    return f"public/default/parts-{uuid4().hex[:12]}"


@pytest.fixture
def started(topic: str) -> Iterator[Any]:
    """Starts servers: each is a process of its own to the cluster."""
    with ExitStack() as open_ones:

        def start(engine: ClusterSettings) -> Rest:
            server = open_ones.enter_context(running(engine=engine))
            http = open_ones.enter_context(httpx.Client(base_url=server.url, timeout=WAIT_S))
            return Rest(http, server.ws, topic)

        yield start


def plain(cluster: PulsarCluster) -> ClusterSettings:
    """Before brokers as they are shipped: they keep acknowledgements of whole batches."""
    return ClusterSettings(url=cluster.service_url, admin_url=cluster.admin_url, learned_ms=200)


def received(socket: websocket.WebSocket, count: int) -> dict[str, str]:
    frames = [json.loads(socket.recv()) for _ in range(count)]
    return {one["payload"]: one["messageId"] for one in frames}


def acknowledge(socket: websocket.WebSocket, ids: Sequence[str]) -> None:
    for one in ids:
        socket.send(json.dumps({"messageId": one}))


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared", "Exclusive", "Failover"])
def test_a_websocket_that_comes_again_gets_the_rest_of_a_batch(
    started: Any, secure_cluster: SecureCluster, kind: str
) -> None:
    server = started(secure_cluster.engine())
    server.publish(VALUES)
    socket = server.socket(kind)
    ids = list(received(socket, 6).values())
    acknowledge(socket, ids[::2])
    socket.close()
    again = server.socket(kind)
    assert list(received(again, 3).values()) == ids[1::2]
    acknowledge(again, ids[1::2])
    again.close()
    (last,) = server.publish(["last"])
    end = server.socket(kind)
    assert list(received(end, 1).values()) == [last]
    end.close()


def test_the_rest_of_a_batch_comes_after_the_process_was_killed(
    started: Any, secure_cluster: SecureCluster, topic: str, tmp_path: Path
) -> None:
    engine = secure_cluster.engine()
    token = tmp_path / "token"
    token.write_text(engine.token.reveal())
    flags = ["--engine", engine.url, "--admin", engine.admin_url, "--pulsar", "off"]
    for name, value in {
        "token_file": token,
        "tls_trust_file": engine.tls_trust_file,
        "act_for": "server",
    }.items():
        flags += ["--set", f"engine.{name}={value}"]
    with launch(tmp_path, *flags) as process, httpx.Client(base_url=process.url, timeout=WAIT_S) as http:
        killed = Rest(http, "", topic)
        killed.publish(VALUES)
        found = killed.fetch(killed.subscribe(), 6)
        assert killed.acknowledge([found[value] for value in VALUES[:4]]) == [None] * 4
        process.kill()
    server = started(engine)
    instance = server.subscribe()
    assert sorted(server.fetch(instance, 2)) == VALUES[4:]


def test_without_the_setting_the_whole_batch_comes_again(started: Any, pulsar_cluster: PulsarCluster) -> None:
    server = started(plain(pulsar_cluster))
    server.publish(VALUES)
    socket = server.socket("Shared")
    ids = list(received(socket, 6).values())
    acknowledge(socket, ids[::2])
    socket.close()
    again = server.socket("Shared")
    assert list(received(again, 6).values()) == ids
    acknowledge(again, ids)
    again.close()
    (last,) = server.publish(["last"])
    end = server.socket("Shared")
    assert list(received(end, 1).values()) == [last]
    end.close()


def test_messages_of_batches_are_acknowledged_at_another_process(
    started: Any, secure_cluster: SecureCluster
) -> None:
    """The cluster takes them one by one."""
    one, other = started(secure_cluster.engine()), started(secure_cluster.engine())
    one.publish(VALUES)
    instance = one.subscribe()
    found = one.fetch(instance, 6)
    stranger = other.subscribe(receiver_queue_size=1)
    assert other.acknowledge([found[value] for value in VALUES[:2]]) == [None] * 2
    assert other.acknowledge([found[VALUES[2]]]) == [None]
    one.leave(instance)
    other.leave(stranger)
    assert sorted(other.fetch(other.subscribe(), 3)) == VALUES[3:]


def test_whole_batches_are_acknowledged_at_another_process(
    started: Any, pulsar_cluster: PulsarCluster
) -> None:
    """Without the setting: all messages of a batch together, and messages that were published alone."""
    one, other = started(plain(pulsar_cluster)), started(plain(pulsar_cluster))
    one.publish(VALUES)
    one.publish(["alone"])
    one.publish(["a", "b"])
    instance = one.subscribe()
    found = one.fetch(instance, 9)
    stranger = other.subscribe(receiver_queue_size=1)
    whole = [found[value] for value in [*VALUES, "alone"]]
    assert other.acknowledge([*whole, found["a"]]) == [None] * 7 + [1]
    assert other.acknowledge(whole) == [None] * 7
    one.leave(instance)
    other.leave(stranger)
    assert sorted(other.fetch(other.subscribe(), 2)) == ["a", "b"]


def test_instances_of_one_process_acknowledge_for_one_another(
    started: Any, pulsar_cluster: PulsarCluster
) -> None:
    """Whose room is used up by messages that others acknowledged would get no more."""
    server = started(plain(pulsar_cluster))
    for number in range(8):
        server.publish([str(number)])
    first = server.subscribe(receiver_queue_size=2)
    taken = server.fetch(first, 2)
    second = server.subscribe(receiver_queue_size=2)
    others = server.fetch(second, 2)
    assert server.acknowledge([*others.values(), *taken.values()]) == [None] * 4
    rest = server.fetch(second, 2)
    server.leave(first)
    assert server.acknowledge(list(rest.values())) == [None] * 2
    assert sorted([*taken, *others, *rest, *server.fetch(second, 2)]) == [str(n) for n in range(8)]
