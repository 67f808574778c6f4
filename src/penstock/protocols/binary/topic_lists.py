"""The topics of a namespace, asked for once or watched (PIP-145).

A pattern that `Pattern` does not match is not matched here: the client gets all topics and does it itself.
"""

import sys
from bisect import bisect_left, insort

from penstock.broker.capability import offered
from penstock.broker.names import matched_name
from penstock.model.errors import PenstockError
from penstock.model.names import PARTITION_SUFFIX, NamespaceName, TopicName
from penstock.runtime.patterns import Pattern
from penstock.runtime.tasks import Slices
from penstock.wire.contents import crc32c
from penstock.wire.pulsar_pb2 import CommandWatchTopicUpdate

from .peer import Peer


def pattern_of(text: str) -> Pattern | None:
    """The pattern of topics' names without their domain, if it is matched here; else None."""
    try:
        return Pattern(text.split("://", 1)[-1])
    except PenstockError:
        return None


def hash_of(topics: list[str]) -> str:
    """The digest of a list of topics: the CRC-32C of the sorted names, as Pulsar's clients compute it."""
    return crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()


async def listed(
    peer: Peer, namespace: NamespaceName, domain: str | None, pattern: Pattern | None
) -> list[str]:
    """A namespace's topics that may be consumed, partitioned ones by their partitions; in slices of time."""
    slices = Slices()
    found: list[str] = []
    for name in peer.broker.topics.names(namespace, domain):
        await slices.step()
        if pattern is None or pattern.fullmatch(matched_name(name)):
            found += _logs(peer, name)
    return found


def _logs(peer: Peer, name: TopicName) -> list[str]:
    """The names of a topic's logs; none of a topic that is not there or may not be consumed."""
    topics = peer.broker.topics
    if not topics.exists(name) or not peer.admitted.consumes(name):
        return []
    return [sys.intern(str(log)) for log in topics.logs(name)]  # each of many lists would hold a copy


class TopicListWatch:
    """Notifies a client of created and deleted topics that it watches. `begin` makes the list."""

    def __init__(self, peer: Peer, watcher_id: int, namespace: NamespaceName, pattern: Pattern) -> None:
        self._peer = peer
        self._id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self.topics: list[str] = []  # sorted
        self._listing = False
        self._again = False  # permissions changed while the list was made
        self._missed: dict[TopicName, None] = {}  # changed since the listing began
        watch = offered(peer.broker.watch, "watches of topics")
        self._watch = watch(namespace, pattern, self._changed)

    async def begin(self) -> None:
        """List what there is."""
        self._listing = True
        try:
            while True:
                self._again = False
                self._missed.clear()
                found = sorted(await listed(self._peer, self._namespace, "persistent", self._pattern))
                if not self._again:
                    break
            self.topics = found
            for name in self._missed:
                self._replace(name)
        finally:
            self._listing = False

    def _changed(self, name: TopicName) -> None:
        """A topic that matches came, grew or went."""
        if name.domain != "persistent":
            return
        if self._listing:
            self._missed[name] = None
        else:
            self._send(*self._replace(name))

    def _replace(self, name: TopicName) -> tuple[list[str], list[str]]:
        """Bring a topic's logs in the list up to date; which came, and which went."""
        before = self._listed_logs(name)
        after = _logs(self._peer, name)
        came, went = sorted(set(after) - set(before)), sorted(set(before) - set(after))
        for log in went:
            del self.topics[bisect_left(self.topics, log)]
        for log in came:
            insort(self.topics, log)
        return came, went

    def _listed_logs(self, name: TopicName) -> list[str]:
        """The topic itself, or its partitions, as the list has them."""
        topics, itself = self.topics, str(name)
        at = bisect_left(topics, itself)
        found = topics[at : at + 1] if at < len(topics) and topics[at] == itself else []
        first = itself + PARTITION_SUFFIX
        between = topics[
            bisect_left(topics, first) : bisect_left(topics, first + ":")
        ]  # `:` comes after the digits
        return found + [log for log in between if log[len(first) :].isdigit()]

    def _send(self, came: list[str], went: list[str]) -> None:
        if came or went:
            self._peer.send(
                CommandWatchTopicUpdate(
                    watcher_id=self._id,
                    new_topics=came,
                    deleted_topics=went,
                    topics_hash=hash_of(self.topics),
                )
            )

    def review(self) -> None:
        """Permissions changed: list it again, and send the differences."""
        if self._listing:
            self._again = True
        else:
            self._peer.tasks.spawn(self._relist(), "list topics again")

    async def _relist(self) -> None:
        before = set(self.topics)
        await self.begin()
        if self._watch.active:
            now = set(self.topics)
            self._send(sorted(now - before), sorted(before - now))

    def close(self) -> None:
        """Send nothing more."""
        self._watch.close()
