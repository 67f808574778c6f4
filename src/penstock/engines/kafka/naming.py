"""What Kafka's topics are called here: a prefix of each name is its namespace."""

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NamespaceName, TopicName

_KAFKA: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Kafka's rule for topics
HIDDEN: Final = "__"  # Kafka's own topics, and ours
_PARTITION_BITS: Final = 16
_TOPIC_BITS: Final = 37  # with the partition's below 2^53: JSON carries it everywhere


class Place(msgspec.Struct, frozen=True):
    """One partition of Kafka's; `topic_id` is another one if a topic of the same name is made again."""

    topic: str
    partition: int
    topic_id: str

    @property
    def ledger(self) -> int:
        """The ledger that message ids name it by."""
        return ledger_of(self.topic_id, self.partition)


def ledger_of(topic_id: str, partition: int) -> int:
    """The ledger of a partition: the same in every process, and another one when the topic is made again."""
    digest = blake2b(topic_id.encode(), digest_size=8).digest()
    hashed = int.from_bytes(digest, "big") >> (64 - _TOPIC_BITS)
    return hashed << _PARTITION_BITS | partition


class Naming:
    """Maps topics to Kafka's names and back.

    `prefixes` are the configured ones, by `tenant/namespace`. `internal` are the server's own topics by their settings;
    clients cannot name them, nor `hidden` ones, whose names may be those of a namespace's topics. Raises BAD_PARAMETER if two namespaces could share topics or a client could name an internal
    topic, and INVALID_NAME.
    """

    def __init__(
        self,
        prefixes: Mapping[str, str],
        internal: Mapping[str, str] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        self._given = {NamespaceName.parse(name): prefix for name, prefix in prefixes.items()}
        self._given.setdefault(DEFAULT_NAMESPACE, "")
        self._internal = frozenset((*(internal or {}).values(), *hidden))
        self._by_prefix: dict[str, NamespaceName] = {}
        self._lengths: list[int] = []  # of the prefixes, the longest first
        self.know((SYSTEM_NAMESPACE,))
        self._check_prefixes()
        for setting, topic in (internal or {}).items():
            self._check_internal(setting, topic)

    def _check_prefixes(self) -> None:
        if len(set(self._given.values())) < len(self._given):
            raise PenstockError(ErrorKind.BAD_PARAMETER, "engine.namespaces: two namespaces have one prefix")
        for one, other in self.conflicts((*self._given, SYSTEM_NAMESPACE)):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"engine.namespaces: {self._conflict_message(one, other)}"
            )

    def _check_internal(self, setting: str, topic: str) -> None:
        if not _KAFKA.fullmatch(topic) or topic in (".", ".."):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{setting}: {topic!r} cannot be a topic of Kafka")
        namespace = None if topic.startswith(HIDDEN) else self._namespace_of(topic)
        if namespace is not None:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{setting}: {topic} is a topic of namespace {namespace}, to which clients could publish: "
                f"choose a name that begins with {HIDDEN}",
            )

    @property
    def named(self) -> list[NamespaceName]:
        """The namespaces that have a prefix by configuration."""
        return list(self._given)

    def know(self, namespaces: Iterable[NamespaceName]) -> None:
        """The namespaces that exist in addition to those of the configuration: topics with their prefixes belong to them."""
        self._by_prefix = {}
        for name in sorted({*self._given, *namespaces}):
            self._by_prefix.setdefault(self.prefix(name), name)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix}, reverse=True)

    def prefix(self, name: NamespaceName) -> str:
        """What the names of a namespace's topics begin with in Kafka."""
        return self._given.get(name, f"{name.tenant}.{name.namespace}.")

    def conflicts(self, names: Iterable[NamespaceName]) -> list[tuple[NamespaceName, NamespaceName]]:
        """The pairs of namespaces that could share topics: one prefix equals or begins the other.

        A namespace without a prefix has the topics that belong to no other namespace, and conflicts with none.
        """
        found: list[tuple[NamespaceName, NamespaceName]] = []
        open_: list[tuple[str, NamespaceName]] = []  # each prefix begins the next one
        for prefix, name in sorted((self.prefix(name), name) for name in set(names)):
            if not prefix:
                continue
            while open_ and not prefix.startswith(open_[-1][0]):
                open_.pop()
            found += [(other, name) for _, other in open_]
            open_.append((prefix, name))
        return found

    def check_new(self, name: NamespaceName, others: Iterable[NamespaceName]) -> None:
        """Raise BAD_PARAMETER if a new namespace could share topics with another, or have an internal topic."""
        prefix = self.prefix(name)
        if not prefix:
            return
        for other in others:
            theirs = self.prefix(other)
            if other != name and theirs and (theirs.startswith(prefix) or prefix.startswith(theirs)):
                raise PenstockError(ErrorKind.BAD_PARAMETER, self._conflict_message(name, other))
        for topic in self._internal:
            if topic.startswith(prefix):
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER,
                    f"namespace {name} would have the prefix {prefix!r} in Kafka, and {topic} is the server's own topic",
                )

    def _conflict_message(self, name: NamespaceName, other: NamespaceName) -> str:
        return (
            f"namespace {name} would share topics with {other}: in Kafka their names begin with "
            f"{self.prefix(name)!r} and {self.prefix(other)!r}"
        )

    def kafka_name(self, name: TopicName) -> str:
        """The topic of Kafka's that `name` (no partition) means.

        Raises NOT_SUPPORTED for a topic that is not persistent, BAD_PARAMETER for what Kafka does not allow.
        """
        if not name.persistent:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED, "the engine behind this server has no non-persistent topics"
            )
        text = self.prefix(name.namespace_name) + name.local
        if not _KAFKA.fullmatch(text) or text in (".", ".."):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{text!r} cannot be a topic of Kafka: up to 249 letters, digits and ._- only",
            )
        if text.startswith(HIDDEN) or text in self._internal:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{text} is an internal topic of Kafka or this server"
            )
        owner = self._namespace_of(text)
        if owner is not None and len(self.prefix(owner)) > len(self.prefix(name.namespace_name)):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{text} in Kafka is a topic of namespace {owner}, by its prefix"
            )
        return text

    def topic_name(self, kafka: str) -> TopicName | None:
        """The name of one of Kafka's topics here; None for those that are hidden, or whose names are refused."""
        hidden = kafka.startswith(HIDDEN) or kafka in self._internal
        namespace = None if hidden else self._namespace_of(kafka)
        if namespace is None:
            return None
        local = kafka[len(self.prefix(namespace)) :]
        return TopicName.parse_known(f"persistent://{namespace}/{local}")

    def _namespace_of(self, kafka: str) -> NamespaceName | None:
        """Of those whose prefix fits, the one with the longest."""
        for length in self._lengths:
            found = self._by_prefix.get(kafka[:length]) if length < len(kafka) else None
            if found is not None:
                return found
        return None
