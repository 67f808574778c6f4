"""A server for the client's tests, and topics to play with."""

import itertools
from collections.abc import Iterator

import pytest

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, running

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/topic-{next(_NUMBERS)}"


def make_partitions(server: Address, topic: str, count: int) -> None:
    with HttpClient(server.url) as http:
        http.create_topic(TopicName.parse(topic), count)
