"""Request-reply (PIP-371) through a worker: the owner finds the replier, the worker has the wait.

The owner waits for the reply to a request that the worker's producer sent, and sends it over the producer's connection.
"""

from collections.abc import Callable, Sequence

from penstock.broker.producer import Request as AnyRequest
from penstock.engines.pulsar.partitions import Partitions
from penstock.engines.shared.requests import Request, Requests
from penstock.model.message import OutMessage
from penstock.model.names import NamespaceName


class WorkerRequest(Request):
    """A wait for the reply to `message`. `on_withdraw` tells the owner to stop waiting for it."""

    message: OutMessage | None = None
    sent_by: Partitions | None = None  # which number independently of one another; None: not sent yet
    on_withdraw: Callable[["WorkerRequest"], None] | None = None

    def withdraw(self) -> None:
        waited, on_withdraw = self.waiting, self.on_withdraw
        self.on_withdraw = None
        Request.withdraw(self)
        if waited and on_withdraw is not None:
            on_withdraw(self)


class WorkerRequests(Requests):
    """`broker.Requests`."""

    _request = WorkerRequest


class OwnerReplies:
    """Replies between this process and the owner go over the connections of producers and consumers."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests

    async def listen(self, namespace: NamespaceName) -> None:
        """Replies arrive where their requests were sent."""

    def ask(
        self, namespace: NamespaceName, messages: Sequence[OutMessage], timeouts: Sequence[int | None]
    ) -> Sequence[AnyRequest | None]:
        """Make the messages that have a timeout (ms) requests. Raises BAD_PARAMETER before anything happens."""
        return self.requests.ask(messages, timeouts)

    async def close(self) -> None:
        """There is nothing to close."""
