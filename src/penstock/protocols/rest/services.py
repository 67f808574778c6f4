"""What the handlers of REST's operations use: one of each for the whole endpoint."""

from collections.abc import Awaitable, Callable

from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPolls
from penstock.protocols.producer_cache import ProducerCache

from .instances import Instances
from .operations import Target
from .parts import Decoding
from .prepared import Preparing
from .remote_instances import RemoteInstances


class Services:
    """Made by the endpoint, which closes it."""

    def __init__(self, context: ServerContext) -> None:
        self.broker = context.broker
        self.limits = context.limits
        self.polls = LongPolls(self.broker.clock)
        self.decoding = Decoding(self.broker)
        self.producers = ProducerCache(self.broker)
        self.preparing = Preparing(self.decoding, self.broker.clock)
        self.remote_instances = RemoteInstances(context)
        self.instances = Instances(self.broker, self.limits, self.preparing, self.remote_instances)

    async def close(self) -> None:
        """End every wait, and close every consumer instance."""
        await self.polls.close()
        await self.instances.close()


# A handler answers by the exchange; what it raises is answered by the endpoint.
Handler = Callable[[Services, Caller, Target, Exchange], Awaitable[None]]
