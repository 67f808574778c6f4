"""What Kafka's topics are called here: a prefix of each name is its namespace."""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName

_KAFKA: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Kafka's rule for topics
HIDDEN: Final = "__"  # Kafka's own topics, and ours
_PARTITION_BITS: Final = 16
_TOPIC_BITS: Final = 37  # with the partition's below 2^53: JSON carries it everywhere


class Place(msgspec.Struct, frozen=True):
    """One partition of Kafka's, and the ledger that message ids name it by."""

    topic: str
    partition: int
    ledger: int


def ledger_of(topic_id: str, partition: int) -> int:
    """The ledger of a partition: the same in every process, and another one when the topic is made again."""
    digest = blake2b(topic_id.encode(), digest_size=8).digest()
    hashed = int.from_bytes(digest, "big") >> (64 - _TOPIC_BITS)
    return hashed << _PARTITION_BITS | partition


class Naming:
    """Topics here and there. `prefixes` are the configuration's, by `tenant/namespace`; raises BAD_PARAMETER, INVALID_NAME."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self._given = {NamespaceName.parse(name): prefix for name, prefix in prefixes.items()}
        self._given.setdefault(DEFAULT_NAMESPACE, "")
        if len(set(self._given.values())) < len(self._given):
            raise PenstockError(ErrorKind.BAD_PARAMETER, "engine.namespaces: two namespaces have one prefix")
        self._by_prefix: list[tuple[str, NamespaceName]] = []
        self.know(())

    @property
    def named(self) -> list[NamespaceName]:
        """The namespaces that have a prefix by configuration."""
        return list(self._given)

    def know(self, namespaces: Iterable[NamespaceName]) -> None:
        """Which namespaces there are, beside those of the configuration: topics with their prefixes are theirs."""
        every = {*self._given, *namespaces}
        pairs = [(self.prefix(name), name) for name in every]
        self._by_prefix = sorted(pairs, key=lambda pair: (-len(pair[0]), pair))

    def prefix(self, name: NamespaceName) -> str:
        """What the names of a namespace's topics begin with in Kafka."""
        return self._given.get(name, f"{name.tenant}.{name.namespace}.")

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
        if text.startswith(HIDDEN):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{text} is a topic of Kafka's own")
        owner = self._namespace_of(text)
        if owner is not None and len(self.prefix(owner)) > len(self.prefix(name.namespace_name)):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{text} in Kafka is a topic of namespace {owner}, by its prefix"
            )
        return text

    def topic_name(self, kafka: str) -> TopicName | None:
        """The name of one of Kafka's topics here; None for those that are hidden, or whose names are refused."""
        namespace = None if kafka.startswith(HIDDEN) else self._namespace_of(kafka)
        if namespace is None:
            return None
        local = kafka[len(self.prefix(namespace)) :]
        return TopicName.parse_known(f"persistent://{namespace}/{local}")

    def _namespace_of(self, kafka: str) -> NamespaceName | None:
        """Of those whose prefix fits, the one with the longest."""
        return next(
            (
                name
                for prefix, name in self._by_prefix
                if kafka.startswith(prefix) and len(kafka) > len(prefix)
            ),
            None,
        )
