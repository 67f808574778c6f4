"""One request to version 3: the cluster and the topic that its path names, and the places of what it answers."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from penstock.broker.broker import Broker
from penstock.broker.cluster_view import ClusterView, Nodes
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.call import Call
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.http.exchange import Exchange

from .shapes import ListMetadata, Metadata, Related, Resources

PREFIX: Final = "/rest"  # of the REST proxy on the addresses of HTTP
TOPIC_NOT_FOUND: Final = ConfluentCode(404, 40403)
PARTITION_NOT_FOUND: Final = ConfluentCode(404, 40402)
NO_TOPIC_TEXT: Final = "This server does not host this topic-partition."


class V3Call(Call):
    """One request to version 3. `nodes` are those of the cluster that it names."""

    def __init__(
        self,
        caller: Caller,
        names: dict[str, str],
        exchange: Exchange,
        body: bytes,
        view: ClusterView,
        nodes: Nodes,
    ) -> None:
        super().__init__(caller, names, exchange, body)
        self.view = view
        self.nodes = nodes
        self.broker: Broker = caller.context.broker
        if names.get("cluster", nodes.cluster) != nodes.cluster:
            raise ConfluentError(NOT_FOUND, f"Cluster {names['cluster']} cannot be found.")

    @property
    def cluster(self) -> str:
        return self.nodes.cluster

    # -- what the path names

    async def topic(self) -> TopicName:
        """The topic, which exists and which the caller may see. Raises ConfluentError, FORBIDDEN."""
        name = topic_named(self.names["topic"])
        await self.broker.topics.learn(name)
        self.caller.may_look(name)
        if not self.broker.topics.exists(name):
            raise no_topic()
        return name

    def number(self, name: str, default: int = 0) -> int:
        """A number of the path. Raises ConfluentError."""
        text = self.names[name]
        if text.isascii() and text.isdigit() and len(text) < 11:
            return int(text)
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)

    def partition(self, count: int) -> int:
        """The partition of `count` that the path names. Raises ConfluentError."""
        number = self.number("partition")
        if number >= count:
            raise ConfluentError(PARTITION_NOT_FOUND, "Partition not found.")
        return number

    # -- groups

    def sees(self, topic: TopicName) -> bool:
        """Whether groups show a topic to the caller."""
        return self.caller.consumes(topic)

    @property
    def everything(self) -> bool:
        """Whether the caller may see groups of topics that it may not read."""
        return self.caller.administers(DEFAULT_NAMESPACE)

    # -- places

    def url(self, *segments: str | int) -> str:
        """The address of a resource of the cluster."""
        path = "".join(f"/{quote(str(one), safe='')}" for one in ("clusters", self.cluster, *segments))
        return f"{self._base}/v3{path}"

    @property
    def _base(self) -> str:
        return self.exchange.address + PREFIX

    def related(self, *segments: str | int) -> Related:
        return Related(self.url(*segments))

    def metadata(self, url: Sequence[str | int], *name: tuple[str, str | int]) -> Metadata:
        """The place of a resource, and its name by its parts."""
        parts = [("kafka", self.cluster), *name]
        crn = "/".join(f"{key}={quote(str(value), safe='')}" if value != "" else key for key, value in parts)
        return Metadata(self.url(*url), f"crn:///{crn}")

    def listed(self, kind: str, url: Sequence[str | int], data: list[Any]) -> Resources:
        return Resources(f"{kind}List", ListMetadata(self.url(*url)), data)


def topic_named(text: str) -> TopicName:
    """The topic that a path names: one of `public/default`, or by its full name. Raises ConfluentError."""
    try:
        name = TopicName.parse(text)
    except PenstockError as error:
        if error.kind is not ErrorKind.INVALID_NAME:
            raise
        raise no_topic() from None
    if name.partition >= 0:
        raise no_topic()
    return name


def shown(topic: TopicName) -> str:
    """A topic as answers name it: those of `public/default` by their local names."""
    default = topic.persistent and topic.namespace_name == DEFAULT_NAMESPACE
    return topic.local if default else str(topic)


def no_topic() -> ConfluentError:
    return ConfluentError(TOPIC_NOT_FOUND, NO_TOPIC_TEXT)
