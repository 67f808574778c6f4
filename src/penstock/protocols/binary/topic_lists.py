"""The topics of a namespace, asked for once or watched (PIP-145).

A pattern that `Pattern` does not match is not matched here: the client gets all topics and does it itself.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.names import matched_name
from penstock.broker.patterns import Pattern
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import PARTITION_SUFFIX, NamespaceName, TopicName
from penstock.runtime.tasks import Slices
from penstock.wire.checksum import crc32c
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)

from . import answers
from .output import send

if TYPE_CHECKING:
    from .session import Session

WATCHES_MAX: Final = 100  # of one connection

Work = Coroutine[Any, Any, None]

_DOMAINS: Final = {
    CommandGetTopicsOfNamespace.PERSISTENT: "persistent",
    CommandGetTopicsOfNamespace.NON_PERSISTENT: "non-persistent",
    CommandGetTopicsOfNamespace.ALL: None,
}


def _pattern(text: str) -> Pattern | None:
    """The pattern of topics' names without their domain, where it is matched here; else None."""
    try:
        return Pattern(text.split("://", 1)[-1])
    except PenstockError:
        return None


def hash_of(topics: list[str]) -> str:
    """What stands for a list of topics: the CRC-32C of the sorted names, as Pulsar's clients compute it."""
    return crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()


async def _listed(
    session: "Session", namespace: NamespaceName, domain: str | None, pattern: Pattern | None
) -> list[str]:
    """A namespace's topics that may be consumed, partitioned ones by their partitions; in slices of time."""
    slices = Slices()
    found: list[str] = []
    for name in session.broker.topics.names(namespace, domain):
        await slices.step()
        if pattern is None or pattern.fullmatch(matched_name(name)):
            found += _logs(session, name)
    return found


def _logs(session: "Session", name: TopicName) -> list[str]:
    """The names of a topic's logs; none of a topic that is not there or may not be consumed."""
    topics = session.broker.topics
    if not topics.exists(name) or not session.admitted.consumes(name):
        return []
    return [sys.intern(str(log)) for log in topics.logs(name)]  # each of many lists would hold a copy


async def _topics_of_namespace(session: "Session", command: CommandGetTopicsOfNamespace) -> None:
    namespace = NamespaceName.parse(command.namespace)
    session.admitted.may_list(namespace)
    pattern = _pattern(command.topics_pattern) if command.HasField("topics_pattern") else None
    topics = await _listed(session, namespace, _DOMAINS[command.mode], pattern)
    known = hash_of(topics)
    changed = not command.topics_hash or command.topics_hash != known
    answer = CommandGetTopicsOfNamespaceResponse(
        request_id=command.request_id,
        topics=topics if changed else (),
        filtered=pattern is not None,
        topics_hash=known,
        changed=changed,
    )
    send(
        session.output,
        BaseCommand(
            type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, get_topics_of_namespace_response=answer
        ),
    )


def topics_of_namespace(session: "Session", command: CommandGetTopicsOfNamespace, frame: Frame) -> Work:
    """Answer the topics of a namespace; none at all where they are those that the client knows."""
    return session.answered(command.request_id, _topics_of_namespace(session, command))


class TopicListWatch:
    """Tells a client which of the topics it wants came and went. `begin` makes the list; the answer names it."""

    def __init__(
        self, session: "Session", watcher_id: int, namespace: NamespaceName, pattern: Pattern
    ) -> None:
        self._session = session
        self._id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self.topics: list[str] = []  # sorted
        self._listing = False
        self._again = False  # permissions changed while the list was made
        self._missed: dict[TopicName, None] = {}  # changed meanwhile
        self._watch = session.broker.watches.add(namespace, pattern, self._changed)

    async def begin(self) -> None:
        """List what there is."""
        self._listing = True
        try:
            while True:
                self._again = False
                self._missed.clear()
                found = sorted(await _listed(self._session, self._namespace, "persistent", self._pattern))
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
            self._tell(*self._replace(name))

    def _replace(self, name: TopicName) -> tuple[list[str], list[str]]:
        """Bring a topic's logs in the list up to date; which came, and which went."""
        before = self._listed_logs(name)
        after = _logs(self._session, name)
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

    def _tell(self, came: list[str], went: list[str]) -> None:
        if came or went:
            update = CommandWatchTopicUpdate(
                watcher_id=self._id, new_topics=came, deleted_topics=went, topics_hash=hash_of(self.topics)
            )
            command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watch_topic_update=update)
            send(self._session.output, command)

    def review(self) -> None:
        """Permissions changed: list it again, and tell what is different."""
        if self._listing:
            self._again = True
        else:
            self._session.tasks.spawn(self._relist(), "list topics again")

    async def _relist(self) -> None:
        before = set(self.topics)
        await self.begin()
        if self._watch.active:
            now = set(self.topics)
            self._tell(sorted(now - before), sorted(before - now))

    def close(self) -> None:
        """Tell nothing more."""
        self._session.broker.watches.remove(self._watch)


async def _watch(session: "Session", command: CommandWatchTopicList) -> None:
    namespace = NamespaceName.parse(command.namespace)
    session.admitted.may_list(namespace)
    pattern = _pattern(command.topics_pattern)
    if pattern is None:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "this pattern is not matched by the broker")
    _close(session, command.watcher_id)
    if len(session.watches) >= WATCHES_MAX:
        raise PenstockError(ErrorKind.TOO_MANY_REQUESTS, f"more than {WATCHES_MAX} watched lists of topics")
    made = TopicListWatch(session, command.watcher_id, namespace, pattern)
    session.watches[command.watcher_id] = made
    await made.begin()
    if session.closed:
        made.close()
        return
    known = hash_of(made.topics)
    answer = CommandWatchTopicListSuccess(
        request_id=command.request_id,
        watcher_id=command.watcher_id,
        topic=() if command.topics_hash == known else made.topics,
        topics_hash=known,
    )
    send(
        session.output,
        BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watch_topic_list_success=answer),
    )


def watch(session: "Session", command: CommandWatchTopicList, frame: Frame) -> Work:
    """Begin to watch; a pattern that is not matched here is refused, and the client asks again and again."""
    return session.answered(command.request_id, _watch(session, command))


def close_watch(session: "Session", command: CommandWatchTopicListClose, frame: Frame) -> None:
    """Watch no longer."""
    _close(session, command.watcher_id)
    send(session.output, answers.success(command.request_id))


def _close(session: "Session", watcher_id: int) -> None:
    held = session.watches.pop(watcher_id, None)
    if held is not None:
        held.close()
