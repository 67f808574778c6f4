"""What the handlers of REST's operations use: one of each for the whole endpoint."""

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPolls
from penstock.protocols.producer_cache import ProducerCache
from penstock.protocols.remote_instances import RemoteInstances

from .instances import Instances
from .operations import Target
from .parts import Decoding
from .prepared import Preparing

# Passes a request on whose body was read; the answer is that of another process.
PassOn = Callable[[Exchange, bytes], Awaitable[None]]

# In a body that names its producer: only the owner numbers the messages of a name.
_NAMES: Final = (b"producer_name", b"producerName")


class Services:
    """Created and closed by the endpoint. `pass_on` is set in a worker: the process that owns the log has the producers that clients
    name."""

    def __init__(self, context: ServerContext, pass_on: PassOn | None = None) -> None:
        self.pass_on = pass_on
        self.broker = context.broker
        self.limits = context.limits
        self.polls = LongPolls(self.broker.clock)
        self.decoding = Decoding(self.broker)
        self.producers = ProducerCache(self.broker)
        self.preparing = Preparing(self.decoding, self.broker.clock)
        self.remote_instances = RemoteInstances(context)
        self.instances = Instances(self.broker, self.limits, self.preparing, self.remote_instances)

    async def passed_on(self, exchange: Exchange, body: bytes) -> bool:
        """Pass a publish on if it may name its producer; whether it was answered so."""
        if self.pass_on is None or not any(name in body for name in _NAMES):
            return False
        await self.pass_on(exchange, body)
        return True

    async def close(self) -> None:
        """End every wait, and close every consumer instance."""
        await self.polls.close()
        await self.instances.close()


# A handler answers by the exchange; what it raises is answered by the endpoint.
Handler = Callable[[Services, Caller, Target, Exchange], Awaitable[None]]
