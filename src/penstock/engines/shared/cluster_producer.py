"""What producers before a cluster have in common: requests, whose replies may come from other processes."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.producer import Reply, Request, Result
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import NamespaceName
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo

from .producer import OpenProducer
from .replies import Replies
from .requests import Requests


class ClusterProducer(OpenProducer):
    """A producer before a cluster. `replies` carry the replies to its requests; None: the cluster delivers them."""

    def __init__(
        self,
        options: ProducerOptions,
        connected_ms: int,
        version_of: Callable[[SchemaInfo], Awaitable[int | None]],
        namespace: NamespaceName,
        requests: Requests,
        replies: Replies | None,
    ) -> None:
        super().__init__(options, connected_ms, version_of)
        self._namespace = namespace
        self._requests = requests
        self._replies = replies

    async def publish(
        self, messages: Sequence[OutMessage], *, batch: bool = True, requests: Sequence[Request | None] = ()
    ) -> list[Result]:
        """As `broker.Producer.publish`; several calls are on their way at once, in their order."""
        if not requests:
            return await self._publish(messages, batch=batch)
        try:
            if self._replies is not None:
                await self._replies.listen(self._namespace)
            results = await self._publish(messages, batch=batch)
        except PenstockError as error:
            results = [error] * len(messages)
        for request, result in zip(requests, results, strict=True):
            if request is not None:
                if isinstance(result, PenstockError):
                    request.fail(result)
                else:
                    request.placed(result)
        return results

    @abstractmethod
    async def _publish(self, messages: Sequence[OutMessage], *, batch: bool) -> list[Result]:
        """Publish messages; a result each."""

    def ask(self, messages: Sequence[OutMessage], timeouts: Sequence[int | None]) -> Sequence[Request | None]:
        if self._replies is None:
            return self._requests.ask(messages, timeouts)
        return self._replies.ask(self._namespace, messages, timeouts)

    async def request(self, message: OutMessage, timeout_ms: int) -> Reply:
        """As `broker.Producer.request`. Cancelling withdraws the wait."""
        (request,) = self.ask((message,), (timeout_ms,))
        assert request is not None
        try:
            await self.publish((message,), batch=False, requests=(request,))
            return await request.reply()
        finally:
            request.withdraw()
