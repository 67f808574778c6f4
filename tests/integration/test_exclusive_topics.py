"""A topic that one producer has for itself: every endpoint says so to the others by one error, 40905."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pulsar
import pytest
from pulsar import ProducerAccessMode
from tests.integration.test_stages import MEDIA, body, entry
from tests.support.binary import Pulsar, pulsar_server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import penstock


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


def rest(http: httpx.Client, name: str) -> httpx.Response:
    return http.post(f"/topics/public/default/{name}", json={"messages": [{"value": "a"}]})


def shipped(http: httpx.Client, name: str) -> httpx.Response:
    return http.post(f"/topics/persistent/public/default/{name}", json={"messages": [{"payload": "a"}]})


def request(http: httpx.Client, name: str) -> httpx.Response:
    return http.post(f"/topics/public/default/{name}/request", params={"timeout": 100}, json={"value": "a"})


def kafka(http: httpx.Client, name: str) -> httpx.Response:
    return http.post(f"/kafka/topics/{name}/0", content=b"a", headers={"Content-Type": "text/plain"})


def entries(http: httpx.Client, name: str) -> httpx.Response:
    content = body(entry(b"a"), topic=f"persistent://public/default/{name}")
    return http.post("/entries", content=content, headers={"Content-Type": MEDIA})


Publish = Callable[[httpx.Client, str], httpx.Response]


@pytest.mark.parametrize("publish", [rest, shipped, request, kafka, entries])
@pytest.mark.parametrize("before", [False, True], ids=["new here", "published before"])
@pytest.mark.parametrize("mode", ["Exclusive", "ExclusiveWithFencing"])
def test_one_error_on_every_way(server: Pulsar, publish: Publish, before: bool, mode: str) -> None:
    topic = server.topic("alone")
    name = topic.rpartition("/")[2]
    if before:
        assert publish(server.http, name).status_code in (200, 204, 504)  # a request gets no reply
    alone = server.client.create_producer(topic, access_mode=getattr(ProducerAccessMode, mode))
    answer = publish(server.http, name)
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40905), answer.text
    alone.send(b"b")
    alone.close()
    assert publish(server.http, name).status_code in (200, 204, 504)


def test_an_upgrade_is_refused(server: Pulsar) -> None:
    topic = server.topic("alone")
    alone = server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    path = f"{server.server.ws}/ws/v2/producer/persistent/public/default/{topic.rpartition('/')[2]}"
    with pytest.raises(InvalidStatus) as refused, connect(path):
        pass
    assert refused.value.response.status_code == 409
    alone.close()


def test_pulsars_protocol_has_pulsars_two_numbers(server: Pulsar) -> None:
    """ProducerBusy for who would share the topic, which may try again; ProducerFenced for who wants it alone."""
    topic = server.topic("alone")
    alone = server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    client = penstock.Client(server.server.pulsar)
    try:
        for mode, error in (
            (penstock.ProducerAccessMode.Shared, penstock.ProducerBusy),
            (penstock.ProducerAccessMode.Exclusive, penstock.ProducerFenced),
        ):
            with pytest.raises(error):
                client.create_producer(topic, access_mode=mode)
        taken: Any = client.create_producer(
            topic, access_mode=penstock.ProducerAccessMode.ExclusiveWithFencing
        )
        with pytest.raises(pulsar.PulsarException):
            alone.send(b"a")
        taken.close()
    finally:
        client.close()
