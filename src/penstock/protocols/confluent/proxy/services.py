"""What the operations of the REST proxy share."""

from collections.abc import Awaitable, Callable

from penstock.broker.broker import Broker
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.context import ServerContext

from .publishing import Publishing
from .schemas import ProxySchemas


class Services:
    """The parts of one proxy. `load` gives the schema registry; `url` is where clients reach it, empty: as they came."""

    def __init__(self, context: ServerContext, load: Callable[[], Awaitable[Registry]], url: str) -> None:
        self.url = url
        self.context = context
        self.broker: Broker = context.broker
        self.publishing = Publishing(context.broker)
        self.schemas = ProxySchemas(load)
