"""The commits of consumer groups, read and changed from outside."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription

from penstock.model.errors import ErrorKind, PenstockError

from .admin import KafkaAdmin
from .errors import engine_error
from .record import At
from .threads import in_thread

SESSION_MS_MIN: Final = 6_000  # above librdkafka's interval of heartbeats
# States that Kafka's own client calls otherwise.
_STATES: Final = {
    "PREPARING_REBALANCING": "PREPARING_REBALANCE",
    "COMPLETING_REBALANCING": "COMPLETING_REBALANCE",
}
EVENTS_MAX: Final = 100  # that are looked through for the reason of an error


class KnownMember(msgspec.Struct, frozen=True):
    """A member of a group, with its partitions."""

    id: str
    client_id: str
    instance_id: str | None
    partitions: Sequence[At]


class KnownGroup(msgspec.Struct, frozen=True):
    """A group as its coordinator describes it."""

    id: str
    state: str
    type: str
    assignor: str
    is_simple: bool
    coordinator: int | None
    members: Sequence[KnownMember]


class KafkaGroups:
    """Reads groups, and changes those without members; raises as `KafkaAdmin` does."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin
        self._clients = admin.clients
        self._timeout_s = admin.timeout_s
        self._session_ms = max(SESSION_MS_MIN, int(admin.timeout_s * 1000))

    async def committed(self, group: str, places: Iterable[At]) -> dict[At, int]:
        """The offsets that a group has committed for these partitions; none if the group does not exist."""
        wanted = list(places)
        if not wanted:
            return {}
        return await self._clients.wait_unless_refused(in_thread(self._committed, group, wanted))

    def _committed(self, group: str, places: Sequence[At]) -> dict[At, int]:
        wanted = [TopicPartition(*place) for place in places]
        found = self._ask(group, lambda consumer: consumer.committed(wanted, timeout=self._timeout_s))
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    async def commit(self, group: str, changes: Mapping[At, int]) -> None:
        """Commit offsets for a group without members; raises SUBSCRIPTION_BUSY if it has some."""
        if changes:
            await self._clients.wait_unless_refused(in_thread(self._commit, group, dict(changes)))

    def _commit(self, group: str, changes: Mapping[At, int]) -> None:
        wanted = [TopicPartition(*place, offset) for place, offset in changes.items()]
        try:
            self._ask(group, lambda consumer: consumer.commit(offsets=wanted, asynchronous=False) or ())
        except PenstockError as error:
            raise _busy(error, group) from None

    def _ask(self, group: str, ask: Callable[[Any], Sequence[Any]]) -> Sequence[Any]:
        """The partitions that a consumer answers which does not join the group; on a thread.

        Not an administrator: librdkafka 2.16 crashes if its request for commits finds that the coordinator has moved, or is
        loading.
        """
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": self._session_ms,  # also how long a commit waits for the coordinator
        }
        heard: list[KafkaError] = []
        consumer = self._clients.consumer("group", own, heard.append)
        try:
            found = ask(consumer)
        except KafkaException as error:
            raise engine_error(_refusal(consumer, heard) or error, group) from None
        finally:
            consumer.poll(0)  # so that it reports its errors
            consumer.close()
        for one in found:
            if one.error is not None:
                raise engine_error(one.error, group)
        return found

    async def names(self) -> list[str]:
        """The groups of the cluster; those of brokers that do not answer are missing."""
        found = await self._admin.answer(lambda: self._admin.client.list_consumer_groups(**self._admin.bound))
        return [one.group_id for one in found.valid]

    async def describe(self, groups: Sequence[str]) -> list[KnownGroup]:
        """Those groups that exist and can be described."""
        asked = self._admin.client.describe_consumer_groups(list(groups), **self._admin.bound)
        found = (await self._admin.results(asked)).values()
        known = [_known(one) for one in found if not isinstance(one, BaseException)]
        return [one for one in known if one is not None]

    async def find(self, group: str) -> KnownGroup | None:
        """One group; None if it does not exist."""
        try:
            found = await self._admin.answer(
                lambda: self._admin.client.describe_consumer_groups([group], **self._admin.bound)[group],
                group,
            )
        except PenstockError as error:
            if error.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND:
                return None
            raise
        return _known(found)

    async def delete(self, group: str) -> None:
        """Delete a group with all its commits; raises SUBSCRIPTION_NOT_FOUND, SUBSCRIPTION_BUSY."""
        await self._admin.answer(
            lambda: self._admin.client.delete_consumer_groups([group], **self._admin.bound)[group], group
        )


def _refusal(consumer: Any, heard: list[KafkaError]) -> KafkaError | None:
    """The error of a coordinator that refuses the group: calls fail as if there were no coordinator. `heard` gets the errors that
    the consumer reports as it is polled."""
    for _ in range(EVENTS_MAX):
        event = consumer.poll(0)
        if event is None:
            break
        if event.error() is not None:
            heard.append(event.error())
    return next((one for one in heard if one.code() == KafkaError.GROUP_AUTHORIZATION_FAILED), None)


def _known(found: ConsumerGroupDescription) -> KnownGroup | None:
    """A group; None for the description of one that does not exist."""
    if found.state is ConsumerGroupState.DEAD and not found.members:
        return None
    return KnownGroup(
        found.group_id,
        _STATES.get(found.state.name, found.state.name),
        found.type.name,
        found.partition_assignor,
        found.is_simple_consumer_group,
        None if found.coordinator is None else found.coordinator.id,
        [
            KnownMember(
                one.member_id,
                one.client_id,
                one.group_instance_id or None,
                [(at.topic, at.partition) for at in one.assignment.topic_partitions],
            )
            for one in found.members
        ],
    )


def _busy(error: PenstockError, group: str) -> PenstockError:
    """The error of a commit: a group that has members refuses commits of others, as of an unknown member."""
    if "member" in error.message.lower():
        return PenstockError(ErrorKind.SUBSCRIPTION_BUSY, f"{group} has consumers")
    return error
