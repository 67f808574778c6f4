"""The load generators of `benchmarks/`, in Go and in Python: each kind of peer, against a real server.

Every run ends by its count; its time is only a bound.
"""

import json
import shutil
import sys

import httpx
import pytest
from benchmarks import generator
from benchmarks.generator import STAMP, Peer, Result, Server
from tests.support.waiting import until

from penstock.testing.server import Address

TOPIC = "public/default"
SECONDS = 60.0
MESSAGE = '{"payload":"aGVsbG8=","context":"1"}'
COMMANDS = {"go": None, "asyncio": [sys.executable, "-m", "benchmarks.asyncio_load"]}


@pytest.fixture(params=list(COMMANDS), autouse=True)
def topic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose the generator; gives a topic of the test's own."""
    kind: str = request.param
    if kind == "go" and shutil.which("go") is None:
        pytest.skip("go is needed")
    if (command := COMMANDS[kind]) is not None:
        monkeypatch.setattr(generator, "command", lambda: command)
    return f"{request.node.originalname}-{kind}".replace("_", "-")


def run(server: Address, count: int, *peers: Peer) -> Result:
    result = generator.run(Server(server.port, 0), peers, SECONDS, warm_s=0, count=count)
    assert count <= result.count
    assert result.seconds < SECONDS
    return result


def stored(server: Address, topic: str) -> list[str]:
    answer = httpx.get(f"{server.url}/topics/{TOPIC}/{topic}/partitions/0/messages?max_messages=1000").json()
    return [message["value"] for message in answer["messages"]]


def backlog(server: Address, topic: str) -> int:
    """What the subscription `s` has not acknowledged."""
    found = httpx.get(f"{server.url}/topics/{TOPIC}/{topic}/subscription/s/cursor").json()
    return int(found["cursor"]["backlog"])


def producer(topic: str) -> str:
    return f"/ws/v2/producer/persistent/{TOPIC}/{topic}"


def consumer(topic: str) -> str:
    query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest"
    return f"/ws/v2/consumer/persistent/{TOPIC}/{topic}/s?{query}"


def test_publish(server: Address, topic: str) -> None:
    peer = generator.publish(producer(topic), MESSAGE, connections=2, in_flight=8)
    result = run(server, 100, peer)
    assert 0 < result.p50_ms <= result.p99_ms <= result.max_ms
    assert (
        result.count <= len(stored(server, topic)) <= result.count + 16
    )  # all that was under way was answered


def test_a_refused_message_is_a_failure(server: Address, topic: str) -> None:
    peer = generator.publish(producer(topic), '{"payload":"not base64!"}', connections=1, in_flight=2)
    with pytest.raises(AssertionError, match="failed"):
        run(server, 10, peer)


def test_consume_acknowledges_each(server: Address, topic: str) -> None:
    run(server, 200, generator.publish(producer(topic), MESSAGE, connections=1, in_flight=8))
    count = len(stored(server, topic))
    run(server, count, generator.consume(consumer(topic)))
    until(lambda: backlog(server, topic) == 0)


def test_paced_messages_carry_their_time(server: Address, topic: str) -> None:
    text = f'{{"payload":"aGVsbG8=","properties":{{"at":"{STAMP}"}}}}'
    peers = [generator.consume(consumer(topic)), generator.paced(producer(topic), text, 500)]
    result = run(server, 20, *peers)
    assert 0 < result.p50_ms < SECONDS * 1000


def test_request_and_reply(server: Address, topic: str) -> None:
    text = '{"payload":"aGVsbG8=","context":"1","requestTimeoutMillis":60000}'
    worker = generator.consume(consumer(topic), measured=False, reply="eWVz")
    run(server, 20, worker, generator.request(producer(topic), text, connections=1, in_flight=4))
    call = generator.post(f"/topics/{TOPIC}/{topic}/request", b'{"value": "hello"}')
    run(server, 20, worker, generator.http(call, connections=4))


def test_http_takes_requests_in_turns(server: Address, topic: str) -> None:
    bodies = [json.dumps({"messages": [{"value": value}]}).encode() for value in ("a", "b")]
    requests = [generator.post(f"/topics/{TOPIC}/{topic}", body) for body in bodies]
    run(server, 20, generator.http(*requests, connections=1))
    assert stored(server, topic)[:4] == ["a", "b", "a", "b"]


def test_a_refused_request_is_a_failure(server: Address, topic: str) -> None:
    peer = generator.http(generator.post(f"/topics/{TOPIC}/{topic}", b"{}"), connections=1)
    with pytest.raises(AssertionError, match="failed"):
        run(server, 2, peer)


def test_fetch_counts_what_is_read(server: Address, topic: str) -> None:
    base = f"/topics/{TOPIC}/{topic}"
    httpx.post(f"{server.url}{base}", json={"messages": [{"value": str(n)} for n in range(50)]})
    reads = [generator.get(f"{base}/partitions/0/messages?max_messages={count}") for count in (20, 30)]
    assert run(server, 100, generator.fetch(*reads, connections=1)).count % 10 == 0


def test_fetch_acknowledges_what_came(server: Address, topic: str) -> None:
    base = f"/topics/{TOPIC}/{topic}"
    options = {"subscription_type": "Shared", "initial_position": "earliest"}
    created = httpx.post(f"{server.url}{base}/subscription/s", json=options).json()
    httpx.post(f"{server.url}{base}", json={"messages": [{"value": str(n)} for n in range(50)]})
    path = created["base_uri"].removeprefix(server.url)
    fetch = generator.get(f"{path}/messages?timeout=1000&max_messages=10")
    run(server, 50, generator.fetch(fetch, cursor=f"{base}/subscription/s/cursor", connections=1))
    until(lambda: backlog(server, topic) == 0)
