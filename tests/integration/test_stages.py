"""Staged publishing over HTTP, as a program that is no Spark would do it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.ports import kept_port

from penstock.broker.settings import BrokerSettings
from penstock.client.access import Access
from penstock.client.http import HttpClient, RemoteError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import MEDIA, OpenedTopic, StageCount, Stages
from penstock.testing.server import Address, launch, running
from penstock.wire import entry as wire
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

TOPIC = TopicName.parse("staged")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[Stages]:
    with Stages(Access(url=server.url), retry_s=0) as made:
        yield made


def entry(*payloads: bytes, sequence_id: int = 0, **more: Any) -> bytes:
    return batch_entry(
        pack_plain(payloads),
        len(payloads),
        producer="p",
        sequence_id=sequence_id,
        publish_time=1_700_000_000_000,
        **more,
    )


def body(*entries: bytes, topic: str = "persistent://public/default/staged") -> bytes:
    return b"".join(pack_sections([(topic, entries)]))


def offsets(server: Address, topic: TopicName = TOPIC, partition: int = 0) -> int:
    with HttpClient(server.url) as http:
        return http.offsets(topic, partition).latest


def test_the_whole_way(server: Address, client: Stages) -> None:
    topic = TopicName.parse("way")
    with HttpClient(server.url) as http:
        http.create_topic(topic, 2)
    opened = client.open_topics([topic, TOPIC])
    assert opened.topics == {topic: OpenedTopic(2), TOPIC: OpenedTopic(0)}  # by Pulsar's hash of keys
    one = entry(b"a", b"b")
    sections = pack_sections([(str(topic.of_partition(0)), [one, one]), (str(topic.of_partition(1)), [one])])
    client.stage("w", 1, "s", 0, b"".join(sections))
    assert [offsets(server, topic, n) for n in (0, 1)] == [0, 0]
    staged = client.status("w")
    assert staged["targets"] == []
    assert staged["staged"][0]["stages"] == [
        {"stage": "s", "parts": 1, "messages": 6, "size_bytes": 3 * len(one)}
    ]

    done = client.commit("w", 1, [StageCount("s", 1, 6, 3 * len(one))])

    assert not done["repeated"]
    assert [(s["topic"], s["offset"], s["end_offset"]) for s in done["spans"]] == [
        (str(topic.of_partition(0)), 0, 4),
        (str(topic.of_partition(1)), 0, 2),
    ]
    with HttpClient(server.url) as http:
        found = http.read(topic, 0, encoding="text")["messages"]
        assert [m["value"] for m in found] == ["a", "b", "a", "b"]
        assert found[0]["messageId"][:5] == done["spans"][0]["first_message_id"][:5]
        since = http.offsets(topic, 0, publish_time=done["at"])
        assert since.at == 0, "a log finds what was committed by the time of the commit"
    again = client.commit("w", 1, [StageCount("s", 1, 6, 3 * len(one))])
    assert again == {**done, "repeated": True}
    writer_status = client.status("w")
    assert [(t["topics"], t["batch"], t["messages"]) for t in writer_status["targets"]] == [([], 1, 6)]


def test_a_consumer_gets_what_was_committed_at_once(server: Address, client: Stages) -> None:
    path = f"{server.url}/topics/public/default/woken/subscription/s"
    with httpx.Client(timeout=60) as http:
        made = http.post(path, json={"initial_position": "earliest"}).json()
        one = entry(b"x")
        client.stage("woken", 0, "s", 0, body(one, topic="persistent://public/default/woken"))
        client.commit("woken", 0, [StageCount("s", 1, 1, len(one))])
        got = http.get(f"{path}/consumer/{made['id']}/messages", params={"timeout": 20_000}).json()
        assert len(got["messages"]) == 1, got


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", ErrorKind.BAD_PARAMETER),
        (body(), ErrorKind.BAD_PARAMETER),
        (b"\x00", ErrorKind.BAD_ENCODING),
        (body(entry(b"a"))[:-1], ErrorKind.BAD_ENCODING),
        (body(b"no entry"), ErrorKind.BAD_ENCODING),
        (body(entry(b"abcdefgh")[:-1] + b"!"), ErrorKind.CHECKSUM),
        (body(entry(b"a"), topic="a//b//c"), ErrorKind.INVALID_NAME),
        (body(entry(b"a"), topic="parted"), ErrorKind.BAD_PARAMETER),
        (body(entry(b"a"), topic="parted-partition-2"), ErrorKind.PARTITION_NOT_FOUND),
        (body(entry(b"a"), topic="non-persistent://public/default/x"), ErrorKind.BAD_PARAMETER),
        (body(entry(b"a", schema_version=3)), ErrorKind.SCHEMA_NOT_FOUND),
        (body(entry(bytes(5 << 20), b"x" * 20_000)), ErrorKind.TOO_LARGE),
        (bytes(6 << 20), ErrorKind.TOO_LARGE),
        (
            body(batch_entry(b"x", 5, producer="p", sequence_id=0, publish_time=1)),
            ErrorKind.BAD_ENCODING,
        ),
    ],
    ids=range(14),
)
def test_what_cannot_be_staged(server: Address, client: Stages, content: bytes, kind: ErrorKind) -> None:
    with HttpClient(server.url) as http, suppress(RemoteError):  # the first case makes it
        http.create_topic(TopicName.parse("parted"), 2)
    with pytest.raises(PenstockError) as caught:
        client.stage("bad", 0, "s", 0, content)
    assert caught.value.kind.codes == kind.codes
    client.open_topics([TOPIC])
    assert client.status("bad")["staged"] == []
    if b"non-persistent" not in content:
        before = offsets(server)
        with pytest.raises(PenstockError):
            client.publish(content, deduplicate=False)
        assert offsets(server) == before


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("PUT", "/stages", b"", 405),
        ("GET", "/stages/w/0", b"", 405),
        ("GET", "/stages/w/0/s/0/x", b"", 404),
        ("GET", "/stages/%20", b"", 412),
        ("GET", "/stages/%ff", b"", 412),
        ("POST", "/stages/w/0/s", b"{}", 405),
        ("POST", "/stages/w/x/commit", b"{}", 400),
        ("POST", "/stages/w/0/commit", b"{", 422),
        ("POST", "/stages/w/0/commit", b'{"stages": [{"stage": "s"}]}', 400),
        ("POST", "/stages/w/99999999999999999999/commit", b'{"stages": []}', 400),
        ("DELETE", "/stages/w/-1", b"", 400),
        ("POST", "/entries?dedup=true", b"", 400),
        ("POST", "/stages", b'{"topics": ["a//b//c"]}', 412),
    ],
)
def test_requests_that_cannot_be(
    server: Address, method: str, path: str, content: bytes, status: int
) -> None:
    answer = httpx.request(method, server.url + path, content=content)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_entries_come_as_what_they_are(server: Address) -> None:
    content = {"Content-Type": "application/json"}
    assert httpx.put(f"{server.url}/stages/w/0/s/0", content=b"{}", headers=content).status_code == 415
    content = {"Content-Type": MEDIA}
    answer = httpx.post(f"{server.url}/entries", content=body(entry(b"a"), topic="typed"), headers=content)
    assert answer.json()["results"][0]["offset"] == 0


def test_published_at_once_with_and_without_deduplication(server: Address, client: Stages) -> None:
    topic = TopicName.parse("at-once")
    first, second = entry(b"a", b"b"), entry(b"c", sequence_id=2)
    for repeats, sent in ((0, [first]), (1, [first, second]), (2, [first, second])):
        (result,) = client.publish(body(*sent, topic=str(topic)), deduplicate=True)["results"]
        assert result["repeats"] == repeats
        assert result["last_sequence_id"] == (1 if len(sent) == 1 else 2)
    assert offsets(server, topic) == 3
    (back,) = client.publish(body(first, topic=str(topic)), deduplicate=True)["results"]
    assert (back["repeats"], back["last_sequence_id"]) == (1, 2), "the numbers went back: it is no repeat"
    (result,) = client.publish(body(first, topic=str(topic)), deduplicate=False)["results"]
    assert result["last_sequence_id"] is None
    assert offsets(server, topic) == 5


def test_a_server_that_is_killed_keeps_what_was_staged(tmp_path: Path) -> None:
    one = entry(b"a", b"b")
    count = [StageCount("s", 2, 4, 2 * len(one))]
    with launch(tmp_path) as server:
        with Stages(Access(url=server.url)) as client:
            client.stage("w", 0, "s", 0, body(one))
            client.stage("w", 0, "s", 1, body(one))
        server.kill()
    with launch(tmp_path) as server:
        with Stages(Access(url=server.url)) as client:
            assert offsets(server) == 0
            client.stage("w", 0, "s", 1, body(one))
            assert not client.commit("w", 0, count)["repeated"]
        server.kill()
    with launch(tmp_path) as server, Stages(Access(url=server.url)) as client:
        assert client.commit("w", 0, count)["repeated"]
        assert offsets(server) == 4


def test_a_client_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    one = entry(b"a")
    with (
        kept_port() as port,
        launch(tmp_path, port=port) as server,
        Stages(Access(url=server.url)) as client,
    ):
        client.stage("w", 0, "s", 0, body(one))
        server.kill()

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.commit, "w", 0, [StageCount("s", 1, 1, len(one))])
            with launch(tmp_path, port=port):
                assert waiting.result()["spans"][0]["end_offset"] == 1


def test_rooms_are_bounded(tmp_path: Path) -> None:
    bounds = BrokerSettings(max_staged_bytes_per_writer=1000)
    with running(tmp_path, broker=bounds) as server, Stages(Access(url=server.url), retry_s=0) as client:
        client.stage("w", 0, "s", 0, body(entry(bytes(600))))
        with pytest.raises(PenstockError, match="max_staged_bytes_per_writer is 1000"):
            client.stage("w", 0, "s", 1, body(entry(bytes(600))))
        client.stage("v", 0, "s", 0, body(entry(bytes(600))))


def test_delayed_and_keyed_entries_are_taken_as_they_are(server: Address, client: Stages) -> None:
    made = wire.encode(
        [OutMessage(payload=b"later", key="k", deliver_at=2_000_000_000_000)],
        producer="p",
        sequence_id=0,
        publish_time=1,
        schema_version=None,
    )
    client.stage("delayed", 0, "s", 0, body(made.data, topic="delayed"))
    client.commit("delayed", 0, [StageCount("s", 1, 1, len(made.data))])
    with HttpClient(server.url) as http:
        (message,) = http.read(TopicName.parse("delayed"), encoding="text")["messages"]
    assert (message["value"], message["key"]) == ("later", "k")
