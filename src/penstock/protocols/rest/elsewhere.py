"""Consumer instances of other processes before the same cluster: requests for them are sent there (307).

An instance is marked by properties of its consumer, which the cluster shows to every process. They name a digest of the
instance's id: the id itself is for its owner alone.
"""

import re
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote_plus

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind
from penstock.model.policy import OWN_PROPERTIES
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.exchange import Exchange

from .operations import Target

INSTANCE: Final = f"{OWN_PROPERTIES}consumer-instance"
ADDRESS: Final = f"{OWN_PROPERTIES}url"
_URL: Final = re.compile(r"https?://[!-~]+")  # a client of a cluster may say anything


def _digest(id: str) -> str:
    return blake2b(id.encode(), digest_size=12).hexdigest()


class Elsewhere:
    """Finds the process that has an instance, where there are several."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    @property
    def own_url(self) -> str:
        """Where this process alone is reached; "" where it is the only one."""
        return self._context.own_url

    def marks(self, id: str) -> dict[str, str]:
        """The properties of the consumer of an instance of this process."""
        return {INSTANCE: _digest(id), ADDRESS: self.own_url} if self.own_url else {}

    async def check(self, target: Target, exchange: Exchange, id: str | None = None) -> None:
        """Send the client to the process that has an instance, or (without `id`) any of the subscription; returns where
        there is none elsewhere. Raises MOVED."""
        broker: Broker = self._context.broker
        if broker.cluster is None or not self.own_url:
            return
        log = broker.topics.logs(target.topic)[0] if broker.topics.exists(target.topic) else target.topic
        for properties in await broker.cluster.consumers(log, target.subscription):
            address = properties.get(ADDRESS, "")
            if not _URL.fullmatch(address) or address == self.own_url:
                continue
            if id is None or properties.get(INSTANCE) == _digest(id):
                url = address.rstrip("/") + _request_target(exchange)
                raise RefusedError(
                    ErrorKind.MOVED, f"the consumer is at {address}: ask there", {"location": url}
                )


def _request_target(exchange: Exchange) -> str:
    """Path and query, as the client wrote them, without its token: any client of the cluster may have said where that is."""
    scope = exchange.scope
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    pairs = scope["query_string"].decode("latin-1").split("&")
    query = "&".join(pair for pair in pairs if unquote_plus(pair.partition("=")[0]).lower() != "token")
    return path.decode("latin-1") + (f"?{query}" if query else "")
