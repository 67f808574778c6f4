"""What the operations of the REST proxy share."""

from collections.abc import Awaitable, Callable

from penstock.broker.broker import Broker
from penstock.broker.cluster_view import ClusterView
from penstock.broker.groups import Groups
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.context import ServerContext
from penstock.protocols.http.long_poll import LongPolls
from penstock.protocols.remote_instances import RemoteInstances

from .broker_view import BrokerView
from .instances import Instances
from .publishing import Publishing
from .schemas import ProxySchemas
from .subscription_groups import SubscriptionGroups


class Services:
    """The parts of one proxy. `load` gives the schema registry; `url` is where clients reach it, empty: as they came."""

    def __init__(self, context: ServerContext, load: Callable[[], Awaitable[Registry]], url: str) -> None:
        self.url = url
        self.context = context
        self.broker: Broker = context.broker
        self.view: ClusterView = context.broker.cluster_view or BrokerView(context)
        self.groups: Groups = context.broker.groups or SubscriptionGroups(context.broker)
        self.polls = LongPolls(context.broker.clock)
        self.remote = RemoteInstances(context)
        self.instances = Instances(context, self.remote)
        self.publishing = Publishing(context.broker)
        self.schemas = ProxySchemas(context.broker, load)

    def drain(self) -> None:
        """End every wait."""
        self.polls.drain()
        self.remote.drain()

    async def close(self) -> None:
        """End every wait, and close every consumer instance."""
        await self.polls.close()
        await self.instances.close()
