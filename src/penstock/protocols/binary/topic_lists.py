"""The topics of a namespace, asked for once or watched (PIP-145).

A pattern that `Pattern` does not match is not matched here: the client gets all topics and does it itself.
"""

from typing import TYPE_CHECKING, Final

from penstock.core.patterns import Pattern
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
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


def _names(
    session: "Session", namespace: NamespaceName, domain: str | None, pattern: Pattern | None
) -> list[str]:
    """A namespace's topics that may be consumed, partitioned ones by their partitions."""
    broker, may_have = session.broker, session.admitted.consumes
    found: list[str] = []
    for name in broker.topics.names(namespace, domain):
        if not may_have(name):
            continue
        if pattern is None or pattern.fullmatch(f"{name.tenant}/{name.namespace}/{name.local}"):
            found += [str(log) for log in broker.topics.logs(name)]
    return found


def topics_of_namespace(session: "Session", command: CommandGetTopicsOfNamespace, frame: Frame) -> None:
    """Answer the topics of a namespace; none at all where they are those that the client knows."""
    try:
        namespace = NamespaceName.parse(command.namespace)
        session.admitted.may_list(namespace)
        pattern = _pattern(command.topics_pattern) if command.HasField("topics_pattern") else None
        topics = _names(session, namespace, _DOMAINS[command.mode], pattern)
    except PenstockError as error:
        send(session.output, answers.error(command.request_id, error))
        return
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


class TopicListWatch:
    """Tells a client which of the topics it wants came and went."""

    def __init__(
        self, session: "Session", watcher_id: int, namespace: NamespaceName, pattern: Pattern
    ) -> None:
        self._session = session
        self._id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self.topics = self._now()
        session.broker.topics.listeners.add(self.changed)

    def _now(self) -> list[str]:
        return _names(self._session, self._namespace, "persistent", self._pattern)

    def changed(self, name: TopicName) -> None:
        """A topic came, grew or went."""
        if name.namespace_name == self._namespace:
            self.review()

    def review(self) -> None:
        """Look again, also after permissions changed."""
        now = self._now()
        came, went = sorted(set(now) - set(self.topics)), sorted(set(self.topics) - set(now))
        self.topics = now
        if came or went:
            update = CommandWatchTopicUpdate(
                watcher_id=self._id, new_topics=came, deleted_topics=went, topics_hash=hash_of(now)
            )
            command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watch_topic_update=update)
            send(self._session.output, command)

    def close(self) -> None:
        self._session.broker.topics.listeners.discard(self.changed)


def watch(session: "Session", command: CommandWatchTopicList, frame: Frame) -> None:
    """Begin to watch; a pattern that is not matched here is refused, and the client asks again and again."""
    try:
        namespace = NamespaceName.parse(command.namespace)
        session.admitted.may_list(namespace)
        pattern = _pattern(command.topics_pattern)
        if pattern is None:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "this pattern is not matched by the broker")
        if len(session.watches) >= WATCHES_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"more than {WATCHES_MAX} watched lists of topics"
            )
    except PenstockError as error:
        send(session.output, answers.error(command.request_id, error))
        return
    _close(session, command.watcher_id)
    made = session.watches[command.watcher_id] = TopicListWatch(
        session, command.watcher_id, namespace, pattern
    )
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


def close_watch(session: "Session", command: CommandWatchTopicListClose, frame: Frame) -> None:
    """Watch no longer."""
    _close(session, command.watcher_id)
    send(session.output, answers.success(command.request_id))


def _close(session: "Session", watcher_id: int) -> None:
    held = session.watches.pop(watcher_id, None)
    if held is not None:
        held.close()
