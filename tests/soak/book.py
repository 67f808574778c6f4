"""What the clients of a soak did and were answered, to be compared with what the server has at the end."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from .server import SoakServer

KEYS: Final = 5
PAGE: Final = 5000


class Writer:
    """Numbered messages of one client on one topic, each of the key `number % KEYS`.

    `once`: the server knows repeats, and stores none.
    """

    def __init__(self, name: str, topic: str, *, once: bool) -> None:
        self.name = name
        self.topic = topic
        self.once = once
        self.next = 0
        self.attempts: Counter[int] = Counter()
        self.acknowledged: set[int] = set()

    def key(self, number: int) -> str:
        return f"{self.name}-{number % KEYS}"

    def value(self, number: int) -> str:
        """The message; every call is an attempt to publish it."""
        self.attempts[number] += 1
        return f"{self.name}|{self.key(number)}|{number}|" + "x" * (number * 37 % 400)

    def take(self, count: int = 1) -> list[int]:
        """The next numbers."""
        numbers = list(range(self.next, self.next + count))
        self.next += count
        return numbers


class Book:
    """All writers, and what consumers saw."""

    def __init__(self) -> None:
        self.writers: dict[str, Writer] = {}
        self.events: Counter[str] = Counter()
        self.seen: defaultdict[str, set[str]] = defaultdict(set)  # by topic
        self.settled: set[str] = set()  # ids whose acknowledgement was answered
        self.broken: list[str] = []  # promises, as they were broken

    def writer(self, kind: str, topic: str, *, once: bool) -> Writer:
        name = f"{kind}-{sum(1 for each in self.writers if each.startswith(kind + '-'))}"
        made = self.writers[name] = Writer(name, topic, once=once)
        return made

    @property
    def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers.values())

    def received(self, topic: str, message_id: str, value: str) -> None:
        if message_id in self.settled:
            self.broken.append(f"{topic}: {message_id} came after its acknowledgement was answered")
        self.seen[topic].add(value)

    def compare(self, server: SoakServer) -> dict[str, int]:
        """Assert every promise; returns how many messages there are, by topic."""
        assert not self.broken, self.broken[:5]
        totals: dict[str, int] = {}
        for topic in sorted({writer.topic for writer in self.writers.values()}):
            stored = [list(_stored(server, topic, number)) for number in _partitions(server, topic)]
            totals[topic] = sum(map(len, stored))
            mine = {w.name: w for w in self.writers.values() if w.topic == topic}
            _compare(mine, stored)
        return totals


def _compare(writers: dict[str, Writer], stored: Iterable[list[str]]) -> None:
    """One topic: nothing lost, nothing from nowhere, no repeats but of attempts, order by key."""
    counts: dict[str, Counter[int]] = {name: Counter() for name in writers}
    for partition in stored:
        last: dict[str, int] = {}
        for value in partition:
            name, key, text, _ = value.split("|", 3)
            number = int(text)
            assert name in writers, f"{value[:80]} was never sent"
            if not counts[name][number]:
                assert number > last.get(key, -1), f"{key}: {number} was stored after {last[key]}"
                last[key] = number
            counts[name][number] += 1
    for name, writer in writers.items():
        found = counts[name]
        lost = sorted(writer.acknowledged - set(found))
        assert not lost, f"{name}: {len(lost)} acknowledged and lost, {lost[:10]}"
        for number, count in found.items():
            most = min(1, writer.attempts[number]) if writer.once else writer.attempts[number]
            assert count <= most, f"{name}: {number} is there {count} times, after {most} attempts"


def _partitions(server: SoakServer, topic: str) -> range:
    answer = server.call("GET", f"/admin/v2/persistent/public/default/{topic}/partitions")
    return range(max(1, answer["partitions"]))


def _stored(server: SoakServer, topic: str, partition: int) -> Iterator[str]:
    """Every message of a partition, in order."""
    path = f"/topics/public/default/{topic}/partitions/{partition}"
    at, end = 0, server.call("GET", f"{path}/offsets")["latest"]
    while at < end:
        query = {"offset": at, "max_messages": PAGE, "encoding": "text"}
        messages = server.call("GET", f"{path}/messages", params=query)["messages"]
        assert messages, f"{topic}-{partition} has nothing at {at}, and ends at {end}"
        for message in messages:
            yield str(message["value"])
        at = messages[-1]["offset"] + 1
