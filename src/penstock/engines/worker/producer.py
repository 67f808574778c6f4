"""A producer of a worker, and its requests (PIP-371): the owner finds the replier, the worker has the wait.

The owner waits for the reply to a request that the worker's producer sent, and sends it over the producer's connection.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from penstock.broker.producer import Placement, Reply, Result
from penstock.broker.producer import Request as AnyRequest
from penstock.client.entries.producer import EntryProducer
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.producer import Partitions, Producer
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.shared.requests import Request, Requests, id_key
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.wire.pulsar_pb2 import CommandRequestReceipt

ASKED_MIN: Final = 256  # requests that are remembered before those that ended are dropped


class WorkerRequest(Request):
    """A wait for the reply to `message`. `on_withdraw` asks the owner to stop waiting for it."""

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


class WorkerProducer(Producer):
    """`broker.Producer`. If the owner ends, entries without a receipt are not sent again: the client decides, as when it loses its own
    connection to a single process."""

    def __init__(
        self,
        cluster: PulsarCluster,
        topics: PulsarTopics,
        schemas: Schemas,
        name: TopicName,
        options: ProducerOptions,
        requests: WorkerRequests,
    ) -> None:
        # By the identity of the message, until its id is known.
        self._sending: dict[int, WorkerRequest] = {}
        self._asked: set[WorkerRequest] = set()  # all waiting requests, and some that have ended
        self._prune_at = ASKED_MIN
        new_entries: Callable[..., EntryProducer] = partial(
            EntryProducer, on_reply=self._replied, on_lost=self._lost, resend=False
        )
        super().__init__(cluster, topics, schemas, name, options, requests, None, new_entries)

    async def publish(
        self,
        messages: Sequence[OutMessage],
        *,
        batch: bool = True,
        requests: Sequence[AnyRequest | None] = (),
    ) -> list[Result]:
        """As `broker.Publishing.publish`. Each request is a separate entry: the owner looks for one request in each entry."""
        asked: dict[int, WorkerRequest] = {}
        for request, message in zip(requests, messages, strict=False):
            if isinstance(request, WorkerRequest):
                request.message, request.on_withdraw = message, self._withdraw
                asked[id(message)] = request
        self._remember(asked.values())
        self._sending |= asked
        try:
            return await super().publish(messages, batch=batch and not asked, requests=requests)
        finally:
            for key in asked:
                del self._sending[key]

    async def _publish_to(
        self, to: Partitions, messages: Sequence[OutMessage], *, batch: bool
    ) -> list[Result]:
        if self._sending:
            for message in messages:
                request = self._sending.get(id(message))
                if request is not None:
                    request.sent_by = to
        return await super()._publish_to(to, messages, batch=batch)

    def takes_plain(self, count: int, size_bytes: int, partition: int | None, *, batch: bool = True) -> bool:
        """Also as separate entries: the owner creates them from a batch, in order."""
        each = count > 1 and not batch
        return super().takes_plain(count, size_bytes, partition) and not (each and self.options.shared_name)

    async def publish_plain(
        self,
        payloads: Payloads,
        schema_version: int | None,
        partition: int | None = None,
        *,
        batch: bool = True,
    ) -> Placement:
        if batch or len(payloads) == 1:
            return await super().publish_plain(payloads, schema_version, partition)
        partitions = await self._attached()
        number = 0 if partition is None else self._partitions.router.choose(None, partition)
        ledger, entry = await partitions[number].post_plain(payloads, schema_version, each=True)
        self.published += len(payloads)
        return Placement(self.topics[number], ledger, entry, -1, len(payloads), batched=False)

    @staticmethod
    def _withdraw(request: WorkerRequest) -> None:
        """Ask the owner to stop waiting for the reply to a message."""
        message, sent_by = request.message, request.sent_by
        if message is not None and message.sequence_id is not None and sent_by is not None:
            for entries in sent_by.entries:
                entries.withdraw(message.sequence_id)

    def _remember(self, asked: Iterable[WorkerRequest]) -> None:
        self._asked.update(asked)
        if len(self._asked) >= self._prune_at:
            self._asked = {request for request in self._asked if request.waiting}
            self._prune_at = max(ASKED_MIN, 2 * len(self._asked))

    def _replied(self, entries: EntryProducer, receipt: CommandRequestReceipt) -> None:
        """A reply came, perhaps before the receipt of its request: then the request is found by its sequence id among those that
        the same partitions sent."""
        request_id = MessageId.from_bytes(receipt.request_message_id.SerializeToString())
        version = receipt.schema_version if receipt.HasField("schema_version") else None
        reply = Reply(request_id, receipt.reply_payload, receipt.is_error, version)
        if self._requests.answer(id_key(request_id), reply):
            return
        number = receipt.sequence_id
        for request in self._sending.values():
            message, sent_by = request.message, request.sent_by
            if message is None or sent_by is None or not request.waiting:
                continue
            if message.sequence_id == number and entries in sent_by.entries:
                request.answer(reply)
                return
        self._requests.late += 1

    def _lost(self) -> None:
        """The connection has ended: the owner has dropped the waits."""
        asked, self._asked = self._asked, set()
        for request in asked:
            request.fail(
                PenstockError(
                    ErrorKind.UNAVAILABLE,
                    "the process that owns the log cannot be reached; if the request is stored, its reply will be dropped",
                )
            )
