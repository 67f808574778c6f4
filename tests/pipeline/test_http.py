"""The HTTP client's calls."""

import pickle

import pytest
from tests.pipeline.topics import TopicServer
from tests.support.entries import TIME, lone

from penstock.client.http import HttpClient, RemoteError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.pipeline.http.entries import entries

T = TopicName.parse("t")


def test_calls(server: TopicServer) -> None:
    server.create("t", 2)
    server.append("t", lone(b"a"), partition=1)
    with HttpClient(server.url + "/") as client:
        assert client.partitions(T) == 2
        assert client.topics(DEFAULT_NAMESPACE) == [str(T.of_partition(0)), str(T.of_partition(1))]
        assert client.offsets(T, 1)[1:] == (0, 1, None)
        assert client.offsets(T, 1, TIME + 1).at == 1
        with entries(client.access, T, 1, 0, 1) as stream:
            assert stream.ledger == client.offsets(T, 1).ledger
            assert stream.read(1 << 20).endswith(b"a")


def test_refusals(server: TopicServer) -> None:
    with HttpClient(server.url) as client:
        with pytest.raises(RemoteError) as caught:
            client.partitions(T)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.status, error.code, error.kind) == (404, 40401, ErrorKind.TOPIC_NOT_FOUND)
        with pytest.raises(RemoteError, match="does not exist"), entries(client.access, T, 0, 0, 1):
            pass


def test_nobody_there() -> None:
    with HttpClient("http://127.0.0.1:9") as client:
        with pytest.raises(PenstockError, match="cannot be reached") as caught:
            client.partitions(T)
        assert caught.value.retriable
        with pytest.raises(PenstockError, match="cannot be reached"), entries(client.access, T, 0, 0, 1):
            pass


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "http://", "http://a?b=c", "ws://a"])
def test_addresses(url: str) -> None:
    with pytest.raises(PenstockError, match="is no address like"):
        HttpClient(url)
