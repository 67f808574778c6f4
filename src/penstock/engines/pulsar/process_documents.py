"""The documents by which processes before a Pulsar cluster know one another: messages of a non-persistent topic.

Nothing is stored. Each process renews its document, and writes it again when a starting process asks for all documents. The topic
has its own namespace, because it needs other policies than staged publishing and journals; it is created if it is missing.
"""

import asyncio
import logging
from typing import Any, Final

from penstock.broker.fleet import Learned
from penstock.client.aio.context import Context
from penstock.client.errors import PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.fleet.membership import FORMAT
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import VERSION
from penstock.model.message import Message, OutMessage
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .cluster import PulsarCluster
from .replies import Listener, Sender

log = logging.getLogger(__name__)

LOCAL: Final = "processes"
ANSWERS_S: Final = 1.0  # for all processes to write their documents again
_ID: Final = (
    "penstock-process"  # a property: whose document it is. A message without it asks for all documents
)
_ENDED: Final = "penstock-process-ended"  # a property: the process has ended, as the payload proves


class PulsarProcessDocuments:
    """`ProcessDocuments`."""

    def __init__(
        self,
        cluster: PulsarCluster,
        staging: NamespaceName,
        process: str,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """`staging` is the namespace of staged publishing, `process` a name that no other process has."""
        self._cluster = cluster
        self._topic = TopicName("non-persistent", staging.tenant, f"{staging.namespace}-{LOCAL}", LOCAL)
        self._process = process
        self._clock = clock
        self._tasks = tasks
        self._learned: Learned | None = None
        self._own: tuple[str, bytes] | None = None
        self._listener: Listener | None = None
        self._sender: Sender | None = None
        self._opening = asyncio.Lock()

    async def start(self, learned: Learned) -> None:
        self._learned = learned
        await self._send(b"", {})

    async def write(self, id: str, document: bytes) -> None:
        self._own = id, document
        await self._send(document, {_ID: id})

    async def remove(self, id: str, last: bytes = b"") -> None:
        if self._own is not None and id == self._own[0]:  # nothing is kept of another process
            self._own = None
            await self._send(last, {_ID: id, _ENDED: "true"})

    async def catch_up(self) -> None:
        await self._send(b"", {})
        await asyncio.sleep(ANSWERS_S)  # the number of answers is unknown

    async def _send(self, payload: bytes, properties: dict[str, str]) -> None:
        sender = await self._open()
        message = OutMessage(payload=payload, properties={**properties, **FORMAT.properties()})
        try:
            await sender.send(message, self._clock.now_ms())
        except PulsarException as error:
            raise engine_error(error) from None

    def _arrived(self, message: Message) -> None:
        process = message.properties.get(_ID)
        if process is None:
            if self._own is not None:
                self._tasks.spawn(self._answer(*self._own), "write the document of this process again")
            return
        try:
            FORMAT.check(message.properties.get(VERSION), process)
        except PenstockError as error:
            log.warning("the document of a process cannot be read: %s", error.message)
            return
        if self._learned is not None:
            ended = _ENDED in message.properties
            self._learned(process, None if ended and not message.payload else message.payload)

    async def _answer(self, id: str, document: bytes) -> None:
        try:
            await self.write(id, document)
        except PenstockError as error:
            log.debug("the document of this process was not written: %s", error.message)

    # -- the topic

    async def _open(self) -> Sender:
        """The producer of the topic, which is opened if it is not open, and its consumer. Raises a PenstockError."""
        async with self._opening:
            context = self._cluster.context
            listener, sender = self._listener, self._sender
            try:
                if listener is None or listener.consumer.error is not None:
                    await self._create()
                    self._listener = None
                    self._listener = await self._listen(context)
                if sender is None or sender.producer.error is not None:
                    self._sender = None
                    sender = Sender(context, str(self._partition))
                    await sender.producer.start()
                    self._sender = sender
            except PulsarException as error:
                raise engine_error(error) from None
            return sender

    async def _listen(self, context: Context) -> Listener:
        made = Listener(context, str(self._partition), self._arrived, self._process)
        await made.start()
        return made

    @property
    def _partition(self) -> TopicName:
        return self._topic.of_partition(0)

    async def _create(self) -> None:
        """Create a partitioned topic, which the cluster keeps even if it creates no topics automatically."""
        path = Target.of_topic(self._topic, "partitions")
        try:
            await self._put(path, 1, missing=ErrorKind.NAMESPACE_NOT_FOUND)
        except PenstockError as error:
            if error.kind is not ErrorKind.NAMESPACE_NOT_FOUND:
                raise
            await self._put(Target.of_namespace(self._topic.namespace_name), {})
            await self._put(path, 1)

    async def _put(self, target: Target, body: Any, **more: Any) -> None:
        try:
            await self._cluster.admin.call("PUT", target, body=body, **more)
        except PenstockError as error:
            # The server may not need to create it: another process did so, or an operator.
            if error.kind not in (ErrorKind.ALREADY_EXISTS, ErrorKind.FORBIDDEN):
                raise
