"""Who is where: messages put into topics, and looked for one by one in topics and tables. Without Spark."""

import random
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import Stages
from penstock.wire import entry as wire
from penstock.wire.bulk import pack_sections

TIME_MS = 1_760_000_000_000
ENTRY = 25  # messages
TOGETHER = 8  # entries
BAD = "bad"  # the key of messages that a pipeline turns away

Place = tuple[int, int]  # partition, offset


class Message(NamedTuple):
    """What of a message must arrive, byte by byte."""

    key: str | None
    value: bytes
    n: str


class Publisher:
    """Puts numbered messages into the partitions of a topic: many at once, of all sizes, each its own."""

    def __init__(self, url: str, topic: str, sizes: Sequence[int] = (0, 7, 120, 300)) -> None:
        self._url = url
        self._sizes = sizes
        self.topic = TopicName.parse(topic)
        self._dice = random.Random(8)
        self.count = 0

    def publish(self, count: int, partitions: Sequence[int] = (0, 1)) -> None:
        logs = [str(self.topic.of_partition(p)) for p in partitions]
        with Stages(Access(url=self._url)) as client:
            for start in range(0, count // ENTRY, TOGETHER):
                turns = range(start, min(start + TOGETHER, count // ENTRY))
                sections = [(logs[turn % len(logs)], [self._entry()]) for turn in turns]
                client.publish(b"".join(pack_sections(sections)), deduplicate=False)

    def _entry(self) -> bytes:
        first = self.count
        messages = [self._message() for _ in range(ENTRY)]
        return wire.encode(
            messages,
            producer="census",
            sequence_id=first,
            publish_time=TIME_MS + first,
            schema_version=None,
        ).data

    def _message(self) -> OutMessage:
        number = self.count
        self.count += 1
        key = BAD if number % 10 == 3 else f"k{number % 17}"
        value = self._dice.randbytes(self._dice.choice(self._sizes))
        return OutMessage(payload=value, key=key, properties={"n": str(number)})


def create(url: str, topic: str, partitions: int = 0) -> None:
    with HttpClient(url) as client:
        client.create_topic(TopicName.parse(topic), partitions)


def raw(url: str, topic: str) -> list[dict[str, Any]]:
    """A topic's messages, read over plain HTTP: every offset of every partition, without gaps."""
    name = TopicName.parse(topic)
    found: list[dict[str, Any]] = []
    with HttpClient(url) as client:
        for partition in range(max(1, client.partitions(name))):
            there = client.offsets(name, partition)
            at = there.earliest
            while at < there.latest:
                got = client.read(name, partition, offset=at, max_messages=1000)["messages"]
                assert [m["offset"] for m in got] == list(range(at, at + len(got)))
                found += got
                at += len(got)
    return found


def messages(url: str, topic: str) -> dict[Place, Message]:
    """What a pipeline is to read."""
    return {(m["partition"], m["offset"]): _message(m) for m in raw(url, topic)}


def copies(url: str, topic: str, origin: Callable[[dict[str, Any]], Place]) -> Counter[tuple[Place, Message]]:
    """What a pipeline wrote into a topic, by where it came from."""
    return Counter((origin(m["properties"]), _message(m)) for m in raw(url, topic))


def marked(properties: dict[str, Any]) -> Place:
    """The origin in a property of the pipelines here, `from`: partition:offset."""
    partition, _, offset = properties["from"].partition(":")
    return int(partition), int(offset)


def buried(properties: dict[str, Any]) -> Place:
    """The origin that a dead letter tells."""
    assert properties["x-dlq-error"]
    assert properties["x-dlq-query"]
    assert properties["x-dlq-batch"].isdigit()
    return int(properties["x-dlq-partition"]), int(properties["x-dlq-offset"])


def rows(table: Path) -> Counter[tuple[Place, Message]]:
    """What a pipeline wrote into a Delta table, read by delta-rs."""
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    return Counter(
        (
            (row["partition"], row["offset"]),
            Message(None if row["key"] is None else row["key"].decode(), row["value"], row["n"]),
        )
        for row in found
    )


def payload(found: dict[str, Any]) -> bytes:
    """The bytes of a message that has no schema."""
    return b64decode(found["value"])


def _message(found: dict[str, Any]) -> Message:
    return Message(found["key"], payload(found), found["properties"]["n"])


def same(wanted: dict[Place, Message], got: Counter[tuple[Place, Message]]) -> int:
    """Each exactly once, where it came from and byte by byte; returns how many."""
    expected = Counter(wanted.items())
    missing, extra = expected - got, got - expected
    assert not missing, f"{missing.total()} of {expected.total()} are missing, like {next(iter(missing))}"
    assert not extra, f"{extra.total()} are there twice or changed, like {next(iter(extra))}"
    return got.total()
