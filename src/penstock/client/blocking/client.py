"""The blocking client: the asyncio client's loop in a separate thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.aio import client as aio
from penstock.client.authentication import Authentication
from penstock.client.enums import ConsumerType
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.options import ClientOptions, ConsumerOptions, ProducerOptions, ReaderOptions
from penstock.client.schema import Schema

from .consumer import Consumer
from .loop import LoopThread
from .producer import Producer
from .reader import Reader, TableView


class Client:
    """A client of a Pulsar or Penstock service.

    Args:
        service_url: `pulsar://host:6650`, `pulsar+ssl://…`, `http://…` or `https://…`.
        authentication: The credentials of the client, such as `AuthenticationToken(token)`.
        operation_timeout_seconds: How long to wait for the broker's answers.
        options: See `penstock.client.options.ClientOptions`.

    To be closed, or used as a context manager.
    """

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._inner = aio.Client(service_url, authentication, operation_timeout_seconds, **options)
        self._loop = LoopThread()
        self._closed = False

    def create_producer(
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
            options: See `penstock.client.options.ProducerOptions`; batching is off by default.

        Raises:
            ProducerBusy: The name is in use.
            IncompatibleSchema: The topic has another schema.
        """
        options.setdefault("batching_enabled", False)
        return Producer(
            self._loop, self._loop.call(self._inner.create_producer(topic, producer_name, schema, **options))
        )

    def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        message_listener: Callable[[Consumer, Message], Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Subscribe to a topic, several topics, or all topics that match a pattern.

        Args:
            topic: A name, a list of names, or a compiled pattern of full names.
            subscription_name: The subscription, created if it does not exist.
            consumer_type: How consumers share it.
            schema: The schema to read values by; bytes if None.
            message_listener: A function of the consumer and each message, instead of `receive`; it is called in
                its own thread.
            options: See `penstock.client.options.ConsumerOptions`.

        Raises:
            ConsumerBusy: The subscription is another's, or of another type.
        """
        inner = self._loop.call(
            self._inner.subscribe(topic, subscription_name, consumer_type, schema, **options)
        )
        return Consumer(self._loop, inner, message_listener)

    def create_reader(
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
            reader_listener: A function of the reader and each message, called in a separate thread.
            options: See `penstock.client.options.ReaderOptions`.
        """
        inner = self._loop.call(self._inner.create_reader(topic, start_message_id, schema, **options))
        return Reader(self._loop, inner, reader_listener)

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema | None = None
    ) -> TableView:
        """See a topic as a table: the last value of each key, followed as it changes.

        Args:
            topic: The topic.
            subscription_name: What the name of the passing subscription begins with.
            schema: The schema to read values by; bytes if None.
        """
        reader = self.create_reader(
            topic,
            MessageId.earliest,
            schema,
            is_read_compacted=True,
            subscription_role_prefix=subscription_name,
        )
        return TableView(topic, subscription_name, reader)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions; of one that has none, its own name."""
        return self._loop.call(self._inner.get_topic_partitions(topic))

    def close(self) -> None:
        """Close all producers, consumers, readers and connections."""
        self._end(self._inner.close)

    def shutdown(self) -> None:
        """Drop all connections; messages that wait are lost."""
        self._end(self._inner.shutdown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, end: Callable[[], Any]) -> None:
        if self._closed:
            return
        self._loop.check()
        self._closed = True
        try:
            self._loop.call(end())
        finally:
            self._loop.stop()
