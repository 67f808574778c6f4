"""One request to version 3: the cluster and the topic that its path names, and the places of what it answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from penstock.broker.names import check_partition
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import NOT_FOUND
from penstock.protocols.confluent.proxy.call import ProxyCall
from penstock.protocols.confluent.proxy.produce import TOO_LARGE_TEXT
from penstock.protocols.confluent.proxy.services import Services
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.paths import PREFIX_KEY

from .shapes import ListMetadata, Metadata, Related, Resources

PREFIX: Final = "/rest"  # of the proxy on the addresses of HTTP
# Errors of the broker that have texts and codes in version 3.
KNOWN_ERRORS: Final[Mapping[ErrorKind, ConfluentError]] = {
    **dict.fromkeys(
        (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND),
        ConfluentError(ConfluentCode(404, 40403), "This server does not host this topic-partition."),
    ),
    ErrorKind.PARTITION_NOT_FOUND: ConfluentError(ConfluentCode(404, 40402), "Partition not found."),
    ErrorKind.TOO_LARGE: ConfluentError(ConfluentCode(413, 413), TOO_LARGE_TEXT),
}


class V3Call(ProxyCall):
    """One request to version 3. `cluster` is the id of the one cluster."""

    def __init__(
        self,
        caller: Caller,
        names: dict[str, str],
        exchange: Exchange,
        proxy: Services,
        cluster: str,
    ) -> None:
        super().__init__(proxy, caller, names, exchange, b"", None)
        self.view = proxy.view
        self.cluster = cluster
        self.broker = proxy.broker
        if names.get("cluster", cluster) != cluster:
            raise ConfluentError(NOT_FOUND, f"Cluster {names['cluster']} cannot be found.")

    # -- what the path names

    def partition_of(self, count: int) -> int:
        """The partition of `count` that the path names. Raises ConfluentError, PARTITION_NOT_FOUND."""
        check_partition(self.partition, count)
        return self.partition

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
        """The address of the proxy as the client reached it, unless one is configured."""
        prefix = "" if self.exchange.scope.get(PREFIX_KEY) else PREFIX
        return self.proxy.url.rstrip("/") or self.exchange.address + prefix

    def related(self, *segments: str | int) -> Related:
        return Related(self.url(*segments))

    def metadata(self, url: Sequence[str | int], *name: tuple[str, str | int]) -> Metadata:
        """The place of a resource, and its name by its parts."""
        parts = [("kafka", self.cluster), *name]
        crn = "/".join(f"{key}={quote(str(value), safe='')}" if value != "" else key for key, value in parts)
        return Metadata(self.url(*url), f"crn:///{crn}")

    def listed(self, kind: str, url: Sequence[str | int], data: list[Any]) -> Resources:
        return Resources(f"{kind}List", ListMetadata(self.url(*url)), data)
