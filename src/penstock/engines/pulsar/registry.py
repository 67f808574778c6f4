"""The records of the schema registry, in a topic of the cluster that keeps everything: `records` in `{engine.staging_namespace}-registry`.

One process writes at a time: it has the topic alone, and a process that takes over fences the former off (decision 0118).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.registry import OvertakenError, RegistryRecord
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.attached.errors import engine_error
from penstock.engines.attached.positions import BEFORE_ALL
from penstock.engines.shared.registry_rows import RegistryRows
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import REGISTRY, VERSION
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

from .admin import EXISTS_OR_FORBIDDEN, ensure
from .cluster import PulsarCluster
from .journals import KEEPING
from .readers import Reader, Readers

log = logging.getLogger(__name__)

LOCAL: Final = "records"
LOOK_S: Final = 3600.0  # of one wait for records
MISSING: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)


class _Written(msgspec.Struct, omit_defaults=True):
    process: str
    key: str
    value: msgspec.Raw = msgspec.Raw()  # empty: none
    own: msgspec.Raw = msgspec.Raw()


_decoder: Final = msgspec.json.Decoder(_Written)
Place = tuple[int, int]


class PulsarRegistryRecords:
    """`broker.RegistryRecords`. The topic is read from its first use on, and created with the first record."""

    def __init__(self, cluster: PulsarCluster, staging: NamespaceName, clock: Clock, tasks: Tasks) -> None:
        self.number_schemas: Callable[[], Awaitable[None]] | None = None
        self._cluster = cluster
        self._topic = TopicName("persistent", staging.tenant, f"{staging.namespace}-registry", LOCAL)
        self._clock = clock
        self._tasks = tasks
        self._rows = RegistryRows()
        self._reader: Reader | None = None
        self._readers = Readers(self._topic, cluster, clock)  # one of which asks for the last record
        self._starting = asyncio.Lock()
        self._place: Place = BEFORE_ALL  # of the last record that was read
        self._moved = asyncio.Condition()
        self._producer: EntryProducer | None = None
        self._number = 0

    @property
    def writer(self) -> str:
        return self._rows.writer

    # -- reading

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        await self.catch_up()
        self._rows.open(learn)

    async def catch_up(self) -> None:
        if await self._reading() is None:
            return
        last = await self._readers.last_message_id()
        if last.entry >= 0:
            await self._reached((last.ledger, last.entry))

    async def _reached(self, place: Place) -> None:
        try:
            async with asyncio.timeout(self._cluster.timeout_s), self._moved:
                await self._moved.wait_for(lambda: self._place >= place)
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE, f"{self._topic} cannot be read: the cluster does not answer"
            ) from None

    async def _reading(self) -> Reader | None:
        """The reader of the topic; None if the topic does not exist."""
        if self._reader is not None and not self._reader.closed:
            return self._reader
        async with self._starting:
            if self._reader is None or self._reader.closed:
                made = Reader(self._cluster.context, self._topic, EARLIEST, inclusive=True, numbered=False)
                try:
                    await made.open()
                except PenstockError as error:
                    if error.kind in MISSING:
                        return None
                    raise
                self._reader = made
                self._tasks.spawn(self._read(made), "read the records of the schema registry")
            return self._reader

    async def _read(self, reader: Reader) -> None:
        try:
            while True:
                if not await reader.wait(LOOK_S):
                    continue
                async with self._moved:
                    while (entry := reader.take()) is not None:
                        self._take_in(entry)
                    self._moved.notify_all()
        except (
            PenstockError
        ) as error:  # the next request opens another reader, which reads from the beginning
            log.info("the records of the schema registry are not read: %s", error.message)

    def _take_in(self, entry: Entry) -> None:
        place = entry.ledger, entry.entry_id
        if place <= self._place:
            return
        self._place = place
        for message in wire.decode(entry):
            try:
                REGISTRY.check(message.properties.get(VERSION), str(place))
                found = _decoder.decode(message.payload)
            except (PenstockError, msgspec.DecodeError) as error:
                log.warning("a record of the schema registry cannot be read: %s", error)
                continue
            self._rows.writer = found.process
            self._rows.learn(RegistryRecord(found.key, bytes(found.value) or None, bytes(found.own)))

    # -- writing

    async def take(self) -> None:
        if self._producer is None or self._producer.error is not None:
            await self._drop()
            try:
                self._producer = await self._open()
            except PulsarException as error:
                raise engine_error(error, str(self._topic)) from None
        await self.catch_up()

    async def _open(self) -> EntryProducer:
        how = Publication(topic=str(self._topic), access_mode=ProducerAccessMode.ExclusiveWithFencing)
        if await self._reading() is None:
            admin, namespace = self._cluster.admin, Target.of_namespace(self._topic.namespace_name)
            await ensure(admin, namespace, KEEPING, passed=EXISTS_OR_FORBIDDEN)
            await ensure(
                admin,
                Target.of_topic(self._topic),
                missing=ErrorKind.NAMESPACE_NOT_FOUND,
                passed=EXISTS_OR_FORBIDDEN,
            )
        producer = EntryProducer(self._cluster.context, how, once=True)
        await producer.start()
        return producer

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        try:
            for record in records:
                await self._reached(await self._send(record, process))
        except OvertakenError:
            await self.take()
            if not self._rows.have(records):
                raise

    async def _send(self, record: RegistryRecord, process: str) -> Place:
        producer = self._producer
        assert producer is not None, "`take` was called"
        written = _Written(process, record.key)
        if record.value is not None:
            written.value = msgspec.Raw(record.value)
        if record.own:
            written.own = msgspec.Raw(record.own)
        message = OutMessage(payload=msgspec.json.encode(written), properties=REGISTRY.properties())
        number, self._number = self._number, self._number + 1
        entry = wire.encode(
            (message,),
            producer=producer.name,
            sequence_id=number,
            publish_time=self._clock.now_ms(),
            schema_version=None,
        )
        try:
            return await producer.send(Outgoing(entry.data, number, number))
        except PulsarException as error:
            ended = producer.error is not None
            await self._drop()
            if ended:  # by another process, or with its connection; taking over shows whether it was stored
                raise OvertakenError from None
            raise engine_error(error, str(self._topic)) from None

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.close()
            except PulsarException as error:
                log.debug("the producer of %s could not be closed: %s", self._topic, error)

    def close(self) -> None:
        """Read no more; connections end with the cluster's."""
        self._readers.end()
        if self._reader is not None:
            self._tasks.spawn(self._reader.close(), "leave the records of the schema registry")
