"""Several processes over the embedded engine: `penstock serve --workers`, as its users start it."""

import base64
import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from tests.support.waiting import until
from tests.support.workers import WAIT_S, WORKERS, Replier, Server, publish, rest, serving

import penstock
from penstock.protocols.auth.settings import AuthSettings
from penstock.testing.credentials import Issuer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("workers"), "--pulsar", "127.0.0.1:0") as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"workers-{uuid4().hex[:12]}"


def urls(server: Server) -> Sequence[str]:
    """Each worker's own address."""
    return server.own_urls[-WORKERS:]


def connect(url: str, path: str, **more: Any) -> websocket.WebSocket:
    return websocket.create_connection(
        url.replace("http://", "ws://") + f"/ws/v2/{path}", timeout=WAIT_S, **more
    )


def address_of(socket: websocket.WebSocket) -> str:
    """The address of a client, as the statistics show it."""
    host, port = socket.sock.getsockname()[:2]
    return f"/{host}:{port}"


def take(socket: websocket.WebSocket, count: int) -> list[str]:
    """The texts of so many messages, which are acknowledged."""
    texts: list[str] = []
    while len(texts) < count:
        message = json.loads(socket.recv())
        texts.append(base64.b64decode(message["payload"]).decode())
        socket.send(json.dumps({"messageId": message["messageId"]}))
    return texts


def texts_of(url: str, topic: str) -> list[str]:
    """The values of everything in a topic, in its order."""
    found: list[str] = []
    path, query = f"{rest(url, topic)}/partitions/0/messages", {"max_messages": 1000}
    while page := httpx.get(path, params=query | {"offset": len(found)}, timeout=60).json()["messages"]:
        found += [message["value"] for message in page]
    return found


# -- any worker


def test_what_is_published_at_one_is_consumed_at_another(server: Server, topic: str) -> None:
    one, other = urls(server)
    assert one != other
    official = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    native = official.subscribe(f"persistent://public/default/{topic}", "native")
    consumer = connect(other, f"consumer/persistent/public/default/{topic}/s")
    publish(one, topic, "a", "b")
    producer = connect(one, f"producer/persistent/public/default/{topic}")
    producer.send(json.dumps({"payload": base64.b64encode(b"c").decode()}))
    assert json.loads(producer.recv())["result"] == "ok"
    assert take(consumer, 3) == ["a", "b", "c"]
    assert [native.receive(WAIT_S * 1000).data().decode() for _ in range(3)] == ["a", "b", "c"]

    stats = httpx.get(f"{one}/admin/v2/persistent/public/default/{topic}/stats", timeout=60).json()
    (shown,) = stats["subscriptions"]["s"]["consumers"]
    assert shown["address"] == address_of(consumer)  # the client's, not the worker's
    addresses = {each["address"] for each in stats["publishers"]}
    assert address_of(producer) in addresses
    official.close()
    for each in (producer, consumer):
        each.close()


def test_one_subscription_is_shared_over_workers(server: Server, topic: str) -> None:
    path = f"consumer/persistent/public/default/{topic}/s?subscriptionType=Shared&receiverQueueSize=1"
    consumers = [connect(url, path) for url in urls(server)]
    texts = [str(number) for number in range(20)]
    for text in texts:
        publish(server.url, topic, text)
    halves: list[list[str]] = [[], []]
    for _ in range(5):  # neither can have taken all: each has one at a time
        for half, consumer in zip(halves, consumers, strict=True):
            half += take(consumer, 1)
    assert len(set(halves[0] + halves[1])) == 10
    for consumer in consumers:
        consumer.close()


def test_a_consumer_instance_is_reached_at_every_worker(server: Server, topic: str) -> None:
    one, other = urls(server)
    publish(one, topic, "a", "b")
    at = f"{rest(one, topic)}/subscription/s"
    made = httpx.post(at, json={"initial_position": "earliest"}, timeout=60).json()
    path = f"{rest(other, topic)}/subscription/s"
    found = httpx.get(
        f"{path}/consumer/{made['id']}/messages", params={"timeout": 20_000}, timeout=60
    ).json()["messages"]
    assert [message["value"] for message in found] == ["a", "b"]
    done = {"type": "individual", "messageIds": [message["messageId"] for message in found]}
    acknowledged = httpx.post(f"{at}/cursor", json=done, timeout=60).json()
    assert [each["error_code"] for each in acknowledged["messageIds"]] == [None, None]
    assert httpx.get(f"{path}/cursor", timeout=60).json()["cursor"]["backlog"] == 0
    assert httpx.delete(f"{path}/consumer/{made['id']}", timeout=60).status_code == 204


def test_a_repeat_at_another_worker_is_stored_once(server: Server) -> None:
    namespace = f"{server.url}/admin/v2/namespaces/public/ns-{uuid4().hex[:8]}"
    assert httpx.put(namespace, timeout=60).status_code == 204
    assert httpx.post(f"{namespace}/deduplication", json=True, timeout=60).status_code == 204
    path = namespace.replace(f"{server.url}/admin/v2/namespaces", "/topics") + "/t"
    body = {"producer_name": "p", "messages": [{"value": "a", "sequenceId": 3}]}
    for url in urls(server):
        for _ in range(2):
            assert httpx.post(url + path, json=body, timeout=60).json()["messageIds"][0]["error_code"] is None
    page = httpx.get(f"{server.url}{path}/partitions/0/messages", timeout=60).json()
    assert [message["value"] for message in page["messages"]] == ["a"]


def test_sockets_share_a_name_at_two_workers(server: Server) -> None:
    namespace = f"{server.url}/admin/v2/namespaces/public/ns-{uuid4().hex[:8]}"
    assert httpx.put(namespace, timeout=60).status_code == 204
    assert httpx.post(f"{namespace}/deduplication", json=True, timeout=60).status_code == 204
    name = namespace.rpartition("/")[2]
    sockets = [connect(url, f"producer/persistent/public/{name}/t?producerName=p") for url in urls(server)]
    for number in range(4):
        for text in ("first", "again"):  # numbered by the client: stored once, whichever worker gets it
            socket = sockets[(number + (text == "again")) % WORKERS]
            payload = base64.b64encode(f"{number}".encode()).decode()
            socket.send(json.dumps({"payload": payload, "sequenceId": number}))
            assert json.loads(socket.recv())["result"] == "ok"
    for socket in sockets:  # numbered by the server: never a repeat
        socket.send(json.dumps({"payload": base64.b64encode(b"more").decode()}))
        assert json.loads(socket.recv())["result"] == "ok"
        socket.close()
    page = httpx.get(f"{server.url}/topics/public/{name}/t/partitions/0/messages", timeout=60).json()
    texts = [base64.b64decode(message["value"]).decode() for message in page["messages"]]
    assert texts == ["0", "1", "2", "3", "more", "more"]


def test_a_topic_that_one_creates_is_known_to_all(server: Server, topic: str) -> None:
    one, other = urls(server)
    closed = f"{server.url}/admin/v2/namespaces/public/closed-{topic}"
    assert httpx.put(closed, timeout=60).status_code == 204
    override = {"allowAutoTopicCreation": False}
    assert httpx.post(f"{closed}/autoTopicCreation", json=override, timeout=60).status_code == 204
    path, body = f"/topics/public/closed-{topic}/t", {"messages": [{"value": "a", "partition": 2}]}
    assert httpx.post(other + path, json=body, timeout=60).json()["error_code"] == 40401
    created = httpx.put(f"{one}/admin/v2/persistent/public/closed-{topic}/t/partitions", json=3, timeout=60)
    assert created.status_code == 204
    answer = httpx.post(other + path, json=body, timeout=60).json()
    assert [each["partition"] for each in answer["messageIds"]] == [2]


# -- requests


def test_a_reply_finds_who_asked_at_another_worker(server: Server, topic: str) -> None:
    one, other = urls(server)
    replier = Replier(one, topic)
    for url in (other, one):
        for text, is_error in (("hello", False), ("rorre", True)):
            query = {"timeout": 30_000}
            answer = httpx.post(
                f"{rest(url, topic)}/request", params=query, json={"value": text}, timeout=60
            ).json()
            assert base64.b64decode(answer["replyContent"]).decode() == text[::-1]
            assert answer["isErrorResult"] is is_error
    asking = connect(other, f"producer/persistent/public/default/{topic}")
    for number in range(20):
        payload = base64.b64encode(b"%d" % number).decode()
        asking.send(json.dumps({"payload": payload, "requestTimeoutMillis": 30_000, "context": str(number)}))
    frames = [json.loads(asking.recv()) for _ in range(40)]
    replies = {frame["context"]: frame for frame in frames if frame.get("type") == "reply"}
    turned = {text: base64.b64decode(frame["replyContent"]).decode()[::-1] for text, frame in replies.items()}
    assert turned == {str(number): str(number) for number in range(20)}
    asking.close()
    replier.socket.close()


def test_clients_of_pulsar_s_protocol_ask_and_reply(server: Server, topic: str) -> None:
    client = penstock.Client(server.pulsar)
    consumer = client.subscribe(
        f"persistent://public/default/{topic}", "service", consumer_type=penstock.ConsumerType.Shared
    )

    def serve() -> None:
        request = consumer.receive(WAIT_S * 1000)
        consumer.acknowledge(request, reply=request.data().upper())

    serving = threading.Thread(target=serve)
    serving.start()
    query = {"timeout": 30_000}
    answer = httpx.post(
        f"{rest(server.url, topic)}/request", params=query, json={"value": "ask"}, timeout=60
    ).json()
    serving.join()
    assert base64.b64decode(answer["replyContent"]) == b"ASK"
    consumer.close()
    replier = Replier(server.url, topic)
    producer = client.create_producer(f"persistent://public/default/{topic}")
    assert producer.request(b"abc", 30_000).reply_content == b"cba"
    replier.socket.close()
    client.close()


# -- the server


def test_each_process_shows_its_own_figures(server: Server, topic: str) -> None:
    publish(server.url, topic, "a")
    shared = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert f'topic="persistent://public/default/{topic}"' in shared  # the owner's
    for url in urls(server):
        own = httpx.get(f"{url}/metrics", timeout=60).text
        assert "penstock_store" not in own
        assert "penstock_http_requests_total" in own
        assert httpx.get(f"{url}/health/ready", timeout=60).json() == {"status": "ready"}


def test_no_client_begins_a_session_at_the_owner(server: Server) -> None:
    for url in (server.url, *urls(server)):
        answer = httpx.post(f"{url}/fleet/session", content=b"{", timeout=60)
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40400)


def test_the_owner_serves_workers_alone(server: Server) -> None:
    http, binary = server.internal
    for path in ("/", "/metrics", "/admin/v2/tenants"):
        assert httpx.get(f"http://{http}{path}", timeout=60).status_code == 403
    guess = base64.b64encode(json.dumps({"secret": "wrong"}).encode()).decode()
    wrong = {"Authorization": f"penstock-worker {guess}"}
    assert httpx.get(f"http://{http}/admin/v2/tenants", headers=wrong, timeout=60).status_code == 401
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        connect(f"http://{http}", "producer/persistent/public/default/t")
    client = pulsar.Client(
        f"pulsar://{binary}",
        operation_timeout_seconds=3,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("t")
    client.close()


# -- deaths


class Publishing:
    """Publishes one message after the other over its own connection, until it is stopped."""

    def __init__(self, url: str, topic: str, name: str) -> None:
        self.stored: list[str] = []
        self.failed = 0
        self._stop = threading.Event()
        self._arguments = url, topic, name
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        url, topic, name = self._arguments
        number = 0
        while not self._stop.is_set():
            text, number = f"{name}-{number}", number + 1
            try:
                answer = httpx.post(rest(url, topic), json={"messages": [{"value": text}]}, timeout=60)
            except httpx.HTTPError:
                self.failed += 1
            else:
                if answer.status_code == 200 and answer.json()["messageIds"][0]["error_code"] is None:
                    self.stored.append(text)
                else:
                    self.failed += 1
                    time.sleep(0.02)  # the owner is away

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def more_stored(publishing: Sequence[Publishing]) -> None:
    """Wait until each has published more."""
    goal = [len(one.stored) + 20 for one in publishing]
    until(lambda: all(len(one.stored) >= least for one, least in zip(publishing, goal, strict=True)), WAIT_S)


def kill_owner(server: Server) -> None:
    """Kill the process that owns the log, and wait for the next."""
    deaths = len(server.owner_pids)
    os.kill(server.owner_pids[-1], signal.SIGKILL)
    until(lambda: len(server.owner_pids) > deaths, WAIT_S)


def closed_by_server(socket: websocket.WebSocket) -> bool:
    """Whether a socket is closed by the server, after what it sends before."""
    try:
        while socket.recv():
            pass
    except (websocket.WebSocketException, OSError):
        pass
    socket.shutdown()  # `close` does nothing once it is not connected
    return True


def test_the_owner_is_killed(server: Server, topic: str) -> None:
    publish(server.url, topic, "first")
    path = f"consumer/persistent/public/default/{topic}/s?subscriptionType=Shared&ackTimeoutMillis=0"
    consumer = connect(server.url, f"{path}&subscriptionInitialPosition=Earliest")
    assert take(consumer, 1) == ["first"]
    publishing = [Publishing(url, topic, name) for name, url in zip("ab", urls(server), strict=True)]
    acknowledged: list[str] = []
    for _ in range(2):
        more_stored(publishing)
        kill_owner(server)
    more_stored(publishing)
    for one in publishing:
        one.stop()
    there = texts_of(server.url, topic)
    stored = [text for one in publishing for text in one.stored]
    assert set(stored) <= set(there)
    assert len(there) == len(set(there))  # what got no answer is not sent again by a worker
    # Everything that was not acknowledged comes, also over the socket that was open all the time.
    until_all = set(there) - {"first"}
    while set(acknowledged) != until_all:
        acknowledged += take(consumer, 1)
    assert "first" not in acknowledged  # acknowledged and stored before
    until(
        lambda: (
            httpx.get(f"{rest(server.url, topic)}/subscription/s/cursor", timeout=60).json()["cursor"][
                "backlog"
            ]
            == 0
        ),
        60,
    )
    consumer.close()


def test_a_worker_is_killed(server: Server, topic: str) -> None:
    pids = server.pids[-WORKERS:]
    sockets = [
        connect(url, f"consumer/persistent/public/default/{topic}/s-{n}")
        for n, url in enumerate(urls(server))
    ]
    victim = next(pid for pid in pids if _serves(pid, urls(server)[0]))
    began = len(server.pids)
    os.kill(victim, signal.SIGKILL)
    assert closed_by_server(sockets[0])
    other = urls(server)[1]
    publish(other, topic, "a")
    assert take(sockets[1], 1) == ["a"]
    until(lambda: len(server.pids) > began, 60)
    for _ in range(10):  # a connection for each: both workers have some
        publish(server.url, topic, "b")
    assert take(sockets[1], 10) == ["b"] * 10
    stats = httpx.get(f"{other}/admin/v2/persistent/public/default/{topic}/stats", timeout=60).json()
    assert stats["subscriptions"]["s-0"]["consumers"] == []
    sockets[1].close()


def _serves(pid: int, url: str) -> bool:
    """Whether a process listens at an address."""
    port = int(url.rsplit(":", 1)[1])
    inodes = {
        line.split()[9]
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
    }
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).removeprefix("socket:[").removesuffix("]") in inodes:
                return True
    return False


def test_polls_end_as_the_server_stops(tmp_path: Path) -> None:
    """With no messages: at once, rather than with an error once the time of what is in flight is over."""
    with serving(tmp_path, "--pulsar", "off") as server, ThreadPoolExecutor() as pool:
        url = urls(server)[0]
        made = httpx.post(f"{rest(url, 't')}/subscription/s", json={}, timeout=60).json()
        polls = [
            f"{rest(url, 't')}/subscription/s/consumer/{made['id']}/messages",
            f"{rest(url, 't')}/partitions/0/messages",
        ]
        asked = [pool.submit(httpx.get, path, params={"timeout": 60_000}, timeout=120) for path in polls]

        def asked_now() -> bool:
            found = re.search(
                r"^penstock_http_requests_in_progress\S* (\S+)$",
                httpx.get(f"{url}/metrics", timeout=60).text,
                re.MULTILINE,
            )
            return found is not None and float(found[1]) > len(polls)  # and the one for this

        until(asked_now, WAIT_S)
        server.process.terminate()
        empty, refused = (each.result() for each in asked)
        assert (empty.status_code, empty.json()) == (200, {"messages": []})
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50301)


# -- authentication


def test_callers_keep_their_roles(tmp_path: Path) -> None:
    tokens = Issuer()
    settings: AuthSettings = tokens.settings()
    key = tmp_path / "key"
    key.write_text(settings.token_secret_key.reveal())
    configured = tmp_path / "penstock.toml"
    configured.write_text(
        f"""
[auth]
enabled = true
token_secret_key_file = "{key}"
super_users = ["admin"]
[auth.permissions."public/default"]
alice = ["produce", "consume"]
"""
    )
    admin, alice, bob = (tokens.headers(role) for role in ("admin", "alice", "bob"))
    with serving(tmp_path, "--pulsar", "off", "--config", str(configured)) as server:
        body = {"messages": [{"value": "a"}]}
        path = rest(server.url, "t")
        assert httpx.post(path, json=body, timeout=60).status_code == 401
        assert httpx.post(path, json=body, headers=bob, timeout=60).status_code == 403
        assert httpx.post(path, json=body, headers=alice, timeout=60).status_code == 200
        assert httpx.get(f"{server.url}/admin/v2/tenants", headers=alice, timeout=60).status_code == 403
        assert httpx.get(f"{server.url}/admin/v2/tenants", headers=admin, timeout=60).status_code == 200

        grant = f"{server.url}/admin/v2/namespaces/public/default/permissions/bob"
        assert httpx.post(grant, json=["produce", "consume"], headers=admin, timeout=60).status_code == 204
        # Each worker learns of a grant within a second.
        own = rest(urls(server)[0], "t")
        until(lambda: httpx.post(own, json=body, headers=bob, timeout=60).status_code == 200, 60)
        consumer = connect(
            urls(server)[0],
            "consumer/persistent/public/default/t/s",
            header=[f"Authorization: {bob['Authorization']}"],
        )
        assert httpx.delete(grant, headers=admin, timeout=60).status_code == 204
        assert closed_by_server(consumer)  # the owner takes its consumer away
        until(lambda: httpx.post(path, json=body, headers=bob, timeout=60).status_code == 403, 60)
