"""Requests to the cluster other than records: topics, their configuration, bounds of partitions.

librdkafka answers on its own threads; here an answer is awaited. A temporary error, such as a leader that is not known
yet, is asked again for a short while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from penstock.broker.cluster_view import ConfigSynonym, ConfigValue, Node, Nodes, Replicas
from penstock.engines.shared.catalog import Described as Described
from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import engine_error, passes
from .positions import BEGIN, END, Offsets
from .record import At
from .threads import aside, in_thread

T = TypeVar("T")

TOPICS_MAX: Final = 500  # of one request
GATHER_S: Final = 0.1  # how long a topic waits for the answer to the request before it

Ask = Callable[[Sequence[str]], Mapping[str, "Future[Any]"]]
UNKNOWN_TOPIC: Final = KafkaError.UNKNOWN_TOPIC_OR_PART
AGAIN_S: Final = 0.05  # until what passes is asked again
ASKED_TOPIC: Final = "__consumer_offsets"  # the answer names the brokers, whether this topic exists or not
AGAIN_FOR_S: Final = (
    10.0  # of retries, each as long as its answer; busy brokers take seconds to learn from one another
)


class Descriptions:
    """A topic is in a request that is sent after it was asked for. `ask` sends one; it may raise."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._wanted: dict[str, asyncio.Future[Any]] = {}
        self._timer: asyncio.Handle | None = None
        self._unanswered: set[asyncio.Future[Any]] = set()

    def find(self, topic: str) -> "asyncio.Future[Any]":
        """The answer of the cluster for one topic. Callers share the future: they do not cancel it."""
        future = self._wanted.get(topic)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._wanted[topic] = loop.create_future()
            if self._timer is None:
                # Tasks of the same turn of the loop join.
                self._timer = loop.call_later(GATHER_S if self._unanswered else 0, self._send)
        return future

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._wanted:
            topics = list(islice(self._wanted, TOPICS_MAX))
            self._send_for({topic: self._wanted.pop(topic) for topic in topics})

    def _send_for(self, wanted: Mapping[str, asyncio.Future[Any]]) -> None:
        try:
            answers = self._ask(list(wanted))
        except Exception as error:  # each waiting caller gets it
            if len(wanted) == 1:
                for future in wanted.values():
                    future.set_exception(error)
                return
            for topic, future in wanted.items():
                self._send_for({topic: future})
            return
        for topic, future in wanted.items():
            answer = asyncio.wrap_future(answers[topic])
            self._unanswered.add(answer)
            answer.add_done_callback(partial(self._answered, future))

    def _answered(self, future: "asyncio.Future[Any]", answer: "asyncio.Future[Any]") -> None:
        self._unanswered.discard(answer)
        if answer.cancelled():
            future.cancel()
        elif (error := answer.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(answer.result())
        if not self._unanswered and self._wanted:
            self._send()


class KafkaAdmin:
    """One client for all requests; raises UNAVAILABLE without an answer in time, and refusals of the cluster."""

    def __init__(self, clients: Clients, timeout_s: float, *, renewed: bool = False) -> None:
        self.clients = clients
        self._credentials = CredentialsInUse(clients)
        self.timeout_s = timeout_s
        # Whether another client is made after one had no answer: librdkafka 2.16 does not reach the coordinator of a group
        # again by the client that knew it before it was restarted.
        self._renewed = renewed
        self._made: AdminClient | None = None
        self._left: list[list[AdminClient]] = []  # former clients, alone in their lists: they may owe answers
        self._committed = Offsets(clients, timeout_s, committed=True)
        self._written = Offsets(clients, timeout_s, committed=False)
        self._descriptions = Descriptions(self._ask_for_topics)
        self._heard: KafkaError | None = None  # why brokers are not reached, if librdkafka knows

    @property
    def client(self) -> AdminClient:
        """The client itself, for other modules of this package."""
        if self._credentials.replaced():
            self._leave()
        if self._made is None:
            self._made = self.clients.admin("admin", self._hear)
        return self._made

    def _leave(self) -> None:
        """Use a new client from now on; the former one ends once its requests have ended."""
        if self._made is not None:
            left, self._made = [self._made], None
            self._left.append(left)
            asyncio.get_running_loop().call_later(self.timeout_s, self._end, left)

    def _end(self, left: list[AdminClient]) -> None:
        if left in self._left:
            self._left.remove(left)
            aside(left.clear)  # the last reference: it waits for librdkafka's threads

    def _hear(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says nothing of the reason
            self._heard = error

    async def close(self) -> None:
        """End the client's threads; it waits for them, and not the loop."""

        def drop() -> None:
            self._made = None
            for left in self._left:
                left.clear()
            self._committed.close()
            self._written.close()

        await in_thread(drop)

    # -- topics

    async def check_reachable(self, timeout_s: float) -> None:
        """Ask a broker for metadata; raises UNAVAILABLE, and then further requests use a new client.

        librdkafka 2.16 can lose all brokers for good when a broker that is not registered with its controller answers,
        as after a freeze or at its start. It also aborts the process when such an answer is one to `describe_cluster`.
        """
        self._heard = None
        client = self.client
        try:
            await self._ask_for_brokers(client, timeout_s)
        except PenstockError:
            self.clients.poll()  # delivers pending errors
            if client is self._made:
                self._leave()
            if self._heard is not None:
                raise engine_error(self._heard) from None
            raise

    async def _ask_for_brokers(self, client: AdminClient, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(2 * timeout_s):  # the call may have to wait for a thread
                asked = in_thread(client.list_topics, ASKED_TOPIC, timeout_s)
                found = await self.clients.wait_unless_refused(asked)
        except KafkaException as error:
            raise engine_error(error) from None
        except TimeoutError:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster does not answer") from None
        if not found.brokers:
            raise PenstockError(ErrorKind.UNAVAILABLE, "no broker of the cluster is ready")

    async def nodes(self) -> Nodes:
        """The brokers, from one broker's metadata (see `check_reachable`)."""
        try:
            asked = in_thread(self.client.list_topics, ASKED_TOPIC, self.timeout_s)
            found = await self.clients.wait_unless_refused(asked)
        except KafkaException as error:
            raise engine_error(error) from None
        brokers = [Node(one.id, one.host, one.port) for one in found.brokers.values()]
        controller = None if found.controller_id < 0 else found.controller_id
        return Nodes(found.cluster_id or "", sorted(brokers, key=lambda one: one.id), controller)

    async def topics(self) -> dict[str, int]:
        """The topics of the cluster, and how many partitions each has."""
        client = self.client

        def listing() -> dict[str, int]:  # in the thread, as all that is done for each of many topics
            found = client.list_topics(timeout=self.timeout_s).topics
            return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

        try:
            return await self.clients.wait_unless_refused(in_thread(listing))
        except KafkaException as error:
            raise engine_error(error) from None

    async def describe(self, topic: str) -> Described | None:
        """One topic; None if it is not there."""
        found = await self._description(topic)
        return None if found is None else Described(str(found.topic_id), len(found.partitions))

    async def replicas(self, topic: str) -> list[Replicas] | None:
        """The brokers of the partitions of a topic; None if it does not exist."""
        found = await self._description(topic)
        if found is None:
            return None
        return [
            Replicas(
                None if one.leader is None or one.leader.id < 0 else one.leader.id,
                [node.id for node in one.replicas],
                [node.id for node in one.isr],
            )
            for one in sorted(found.partitions, key=lambda one: one.id)
        ]

    async def _description(self, topic: str) -> TopicDescription | None:
        try:
            found: TopicDescription = await self._awaited(lambda: self._descriptions.find(topic), topic)
        except PenstockError as error:
            if error.kind is ErrorKind.TOPIC_NOT_FOUND:
                return None
            raise
        return found

    def _ask_for_topics(self, topics: Sequence[str]) -> Mapping[str, "Future[Any]"]:
        found: Mapping[str, Future[Any]] = self.client.describe_topics(
            TopicCollection(list(topics)), **self.bound
        )
        return found

    async def describe_all(self, topics: Sequence[str]) -> dict[str, Described | None]:
        """Topics; None for those of which the cluster says that they do not exist. Those without a certain answer are left out."""
        found: dict[str, Described | None] = {}
        for topic, result in (await self.results(self._ask_for_topics(topics))).items():
            if not isinstance(result, BaseException):
                found[topic] = Described(str(result.topic_id), len(result.partitions))
            elif isinstance(result, KafkaException) and result.args[0].code() == UNKNOWN_TOPIC:
                found[topic] = None
        return found

    async def create(
        self, topic: str, partitions: int, replication: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; raises ALREADY_EXISTS, BAD_PARAMETER."""
        new = NewTopic(topic, partitions, replication, config=dict(config or {}))
        await self.answer(lambda: self.client.create_topics([new], **self.bound)[topic], topic)

    async def created(self, topic: str, timeout_s: float) -> Described:
        """Wait until the broker that is asked has heard of a topic that was created; raises UNAVAILABLE."""
        until = asyncio.get_running_loop().time() + timeout_s
        while True:
            found = await self.describe(topic)
            if found is not None:
                return found
            if asyncio.get_running_loop().time() > until:
                raise PenstockError(ErrorKind.UNAVAILABLE, f"{topic} was created, and is not shown")
            await asyncio.sleep(AGAIN_S)

    async def delete(self, topic: str) -> None:
        """Delete a topic; raises TOPIC_NOT_FOUND."""
        await self.answer(lambda: self.client.delete_topics([topic], **self.bound)[topic], topic)

    async def grow(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions; raises TOPIC_NOT_FOUND, BAD_PARAMETER."""
        new = NewPartitions(topic, partitions)
        await self.answer(lambda: self.client.create_partitions([new], **self.bound)[topic], topic)

    async def configs(self, topic: str) -> dict[str, str]:
        """The configuration of a topic, defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = await self.answer(lambda: _one(self.client.describe_configs([resource], **self.bound)), topic)
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    async def config_values(self, topics: Sequence[str]) -> dict[str, list[ConfigValue]]:
        """The configurations of topics as the brokers describe them; those that cannot be had are left out."""
        asked = self.client.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic) for topic in topics], **self.bound
        )
        return {
            resource.name: [_config_value(result[name]) for name in sorted(result)]
            for resource, result in (await self.results(asked)).items()
            if not isinstance(result, BaseException)
        }

    async def set_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set keys of a topic's configuration; None: as the brokers say."""
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        await self.answer(
            lambda: _one(self.client.incremental_alter_configs([resource], **self.bound)), topic
        )

    # -- positions

    async def begins(self, places: Iterable[At]) -> dict[At, int]:
        """The first offsets that there are."""
        return await self._offsets(places, BEGIN)

    async def bounds(self, places: Iterable[At]) -> dict[At, tuple[int, int]]:
        """Both, as `begins` and `ends`."""
        return await self._positions(places, self._committed.bounds)

    async def ends(self, places: Iterable[At]) -> dict[At, int]:
        """The offsets after the last record that a reader of committed records sees."""
        return await self._offsets(places, END)

    async def last_ends(self, places: Iterable[At]) -> dict[At, int]:
        """The offsets after the last record, whether it is committed or not."""
        return await self._offsets(places, END, committed=False)

    async def at_time(self, places: Iterable[At], time_ms: int) -> dict[At, int]:
        """The offsets of the first records of a time (ms) or after it; -1 if there is none."""
        return await self._offsets(places, time_ms)

    async def delete_records(self, ends: Mapping[At, int]) -> None:
        """Delete records before these offsets."""
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]

        async def deleted() -> None:
            for result in (await self.results(self.client.delete_records(wanted, **self.bound))).values():
                if isinstance(result, BaseException):
                    raise result

        await _patiently(deleted)

    async def _offsets(self, places: Iterable[At], time_ms: int, *, committed: bool = True) -> dict[At, int]:
        asked = self._committed if committed else self._written
        return await self._positions(places, lambda wanted: asked.at(wanted, time_ms))

    async def _positions(
        self, places: Iterable[At], ask: Callable[[Sequence[At]], dict[At, T]]
    ) -> dict[At, T]:
        wanted = list(places)
        if not wanted:
            return {}
        return await _patiently(
            lambda: self.clients.wait_unless_refused(in_thread(ask, wanted)),
            check=lambda: self._check_there({topic for topic, _ in wanted}),
        )

    async def _check_there(self, topics: Iterable[str]) -> None:
        """Raise TOPIC_NOT_FOUND unless all topics are there; those that were just created have no leaders yet."""
        for topic in topics:
            if await self.describe(topic) is None:
                raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{topic} is not there")

    # -- answers

    @property
    def bound(self) -> dict[str, float]:
        """How long librdkafka waits for an answer, as its functions take it."""
        return {"request_timeout": self.timeout_s}

    async def results(self, futures: Mapping[Any, "Future[Any]"]) -> dict[Any, Any]:
        """The answers of one request for many, errors among them."""
        asked: asyncio.Future[Any] = asyncio.gather(
            *(asyncio.wrap_future(one) for one in futures.values()), return_exceptions=True
        )
        return dict(zip(futures, await self.clients.wait_unless_refused(asked), strict=True))

    async def answer(self, ask: Callable[[], "Future[Any]"], what: str = "") -> Any:
        """The answer of one request; raises what the cluster refuses, with `what` before it."""
        return await self._awaited(lambda: asyncio.wrap_future(ask()), what)

    async def _awaited(self, ask: Callable[[], "asyncio.Future[Any]"], what: str) -> Any:
        async def answered() -> Any:
            return await self.clients.wait_unless_refused(ask())

        client = self.client
        try:
            return await _patiently(answered, what)
        except PenstockError as error:
            if self._renewed and error.kind is ErrorKind.UNAVAILABLE and client is self._made:
                self._leave()
            raise


async def _patiently(
    ask: Callable[[], Awaitable[T]], what: str = "", check: Callable[[], Awaitable[None]] | None = None
) -> T:
    until = monotonic() + AGAIN_FOR_S
    while True:
        try:
            return await ask()
        except KafkaException as error:
            if monotonic() > until or not passes(error):
                raise engine_error(error, what) from None
        if check is not None:
            await check()
        await asyncio.sleep(AGAIN_S)


def _one(futures: Mapping[Any, "Future[Any]"]) -> "Future[Any]":
    return next(iter(futures.values()))


def _config_value(entry: ConfigEntry) -> ConfigValue:
    return ConfigValue(
        entry.name,
        entry.value,
        _source(entry),
        entry.is_default,
        entry.is_read_only,
        entry.is_sensitive,
        [ConfigSynonym(one.name, one.value, _source(one)) for one in entry.synonyms.values()],
    )


def _source(entry: ConfigEntry) -> str:
    """Kafka's name of the source of a value; some versions of the client give its number."""
    name = ConfigSource(entry.source).name
    return "UNKNOWN" if name == ConfigSource.UNKNOWN_CONFIG.name else name
