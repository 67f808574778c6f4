"""The asyncio client."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.authentication import Authentication
from penstock.client.enums import ConsumerType
from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.options import ClientOptions, ConsumerOptions, ProducerOptions, ReaderOptions, complete
from penstock.client.schema import Schema

from .consumer import Consumer, open_consumer
from .context import Context
from .lookup import topic_name
from .producer import Producer, open_producer
from .reader import Reader, open_reader
from .tasks import log

Listener = Callable[[Consumer, Message], Any]


class Client:
    """A client of a Pulsar or Penstock service, for asyncio.

    Args:
        service_url: `pulsar://host:6650`, `pulsar+ssl://…`, `http://…` or `https://…`.
        authentication: The credentials of the client, such as `AuthenticationToken(token)`.
        operation_timeout_seconds: How long to wait for the broker's answers.
        options: See `penstock.client.options.ClientOptions`.
    """

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.service_url = service_url
        self._context = Context(
            service_url,
            authentication,
            float(operation_timeout_seconds),
            complete(ClientOptions, "Client", options),
        )
        self._open: list[Producer | Consumer | Reader] = []
        self._closed = False

    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """Make a producer of a topic.

        Args:
            topic: The topic; a short name is of `public/default`.
            producer_name: A name, unique on the topic; if None, the broker chooses one.
            schema: The schema of its messages; bytes if None.
            options: See `penstock.client.options.ProducerOptions`.

        Raises:
            ProducerBusy: The name is in use.
            IncompatibleSchema: The topic has another schema.
        """
        self._check()
        producer = await open_producer(
            self._context, topic, producer_name, schema, complete(ProducerOptions, "create_producer", options)
        )
        self._open.append(producer)
        return producer

    async def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        message_listener: Listener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Subscribe to a topic, several topics, or all topics that match a pattern.

        Args:
            topic: A name, a list of names, or a compiled pattern of full names.
            subscription_name: The subscription, created if it does not exist.
            consumer_type: How consumers share it.
            schema: The schema to read values by; bytes if None.
            message_listener: A function or coroutine function of the consumer and each message, instead of
                `receive`.
            options: See `penstock.client.options.ConsumerOptions`.

        Raises:
            ConsumerBusy: The subscription is another's, or of another type.
        """
        self._check()
        consumer = await open_consumer(
            self._context,
            topic,
            subscription_name,
            consumer_type,
            schema,
            complete(ConsumerOptions, "subscribe", options),
        )
        self._open.append(consumer)
        if message_listener is not None:
            job = self._context.tasks.spawn(
                _listen(consumer.receive, consumer, message_listener), "call a message listener"
            )
            consumer.incoming.jobs.append(job)
        return consumer

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema | None = None,
        reader_listener: Callable[[Reader, Message], Any] | None = None,
        **options: Unpack[ReaderOptions],
    ) -> Reader:
        """Read a topic without a subscription.

        Args:
            topic: The topic.
            start_message_id: The position to begin at: after this message, MessageId.earliest or MessageId.latest.
            schema: The schema to read values by; bytes if None.
            reader_listener: A function or coroutine function of the reader and each message.
            options: See `penstock.client.options.ReaderOptions`.
        """
        self._check()
        reader = await open_reader(
            self._context, topic, start_message_id, schema, complete(ReaderOptions, "create_reader", options)
        )
        self._open.append(reader)
        if reader_listener is not None:
            job = self._context.tasks.spawn(
                _listen(reader.read_next, reader, reader_listener), "call a reader listener"
            )
            reader.incoming.jobs.append(job)
        return reader

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions; of one that has none, its own name."""
        self._check()
        name = topic_name(topic)
        count = await self._context.lookup.partitions(str(name))
        return [str(name.of_partition(number)) for number in range(count)] or [str(name)]

    async def close(self) -> None:
        """Close all producers, consumers, readers and connections."""
        if self._closed:
            return
        self._closed = True
        failures: list[Exception] = []
        for one in self._open:
            try:
                await one.close()
            except Exception as error:
                failures.append(error)
        await self._context.close()
        if failures:
            raise failures[0]

    async def shutdown(self) -> None:
        """Drop all connections; messages that wait are lost."""
        self._closed = True
        await self._context.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed:
            raise AlreadyClosed("the client is closed")


async def _listen(receive: Callable[[], Any], source: Any, listener: Callable[[Any, Message], Any]) -> None:
    """Call `listener` with each message; the messages it fails for are not acknowledged."""
    while True:
        try:
            message = await receive()
        except AlreadyClosed:
            return
        try:
            outcome = listener(source, message)
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a message listener failed")
        await asyncio.sleep(0)  # a full queue must not block the loop
