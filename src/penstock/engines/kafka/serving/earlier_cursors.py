"""Takes over the cursors of earlier releases, which kept them in the commits of consumer groups.

A slot's cursors are taken over when it is claimed for the first time, before it is served. A record in the journal then says so:
the groups are not read again, and a subscription that is deleted later stays deleted.

A service whose documents this release began has no earlier ones. It reads no groups: a cluster may have thousands of them, which
are asked one by one.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.engines.kafka.cursors import MAGIC, Cursor, cursor_of
from penstock.engines.kafka.driver.admin import Described
from penstock.engines.kafka.driver.groups import Committed, Member
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.ownership.cursors import Cursors
from penstock.engines.kafka.ownership.ports import EarlierInUse
from penstock.engines.kafka.ownership.records import CursorKey, CursorRecord, adoption
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError

from .shown_marks import MARKER

log = logging.getLogger(__name__)

AT_ONCE: Final = 8  # groups that are asked at once
PROPERTIES: Final = "subscription-properties"  # documents of earlier releases, by topic and subscription
NONE: Final = "cursors", "journal"  # the document of a service without an earlier release
BEGINNING: Final = Committed(-1)  # of a partition without a commit
CLIENT: Final = "penstock-"  # begins the client ids of members that are processes of the server


class Groups(Protocol):
    """What is used of the driver's `KafkaGroups`."""

    async def names(self) -> list[str]: ...
    async def members(self, group: str) -> Sequence[Member]: ...
    async def committed(self, group: str, places: Iterable[At]) -> dict[At, Committed]: ...


class Topics(Protocol):
    """What is used of the driver's `KafkaAdmin`."""

    async def topics(self) -> dict[str, int]: ...
    async def describe(self, topic: str) -> Described | None: ...
    async def begins(self, places: Iterable[At]) -> dict[At, int]: ...


class Documents(Protocol):
    """What is used of the engine's `Documents`."""

    created: bool

    async def load_meta(self, kind: str) -> dict[str, bytes]: ...
    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None: ...


class EarlierCursor(msgspec.Struct, frozen=True):
    """The cursor of a subscription in one partition, and its group."""

    key: CursorKey
    committed: Committed
    group: str


class EarlierCursors:
    """`prefix` begins the names of groups, `service` is the group of this service."""

    def __init__(
        self,
        cursors: Cursors,
        groups: Groups,
        topics: Topics,
        documents: Documents,
        *,
        prefix: str,
        service: str,
    ) -> None:
        self._cursors = cursors
        self._groups = groups
        self._topics = topics
        self._documents = documents
        self._prefix = prefix
        self._service = service
        self._found: Sequence[EarlierCursor] = ()

    async def start(self) -> None:
        """Have every process know if the service has no earlier release; called before the first `read`. Raises UNAVAILABLE."""
        if self._documents.created:
            await self._documents.save_meta([(*NONE, b"{}")])

    async def read(self, slots: Collection[int]) -> None:
        """Read the groups, unless the cursors of all these slots were taken over. Called before the slots are claimed.

        Raises EarlierInUse while processes of an earlier release consume, UNAVAILABLE.
        """
        self._found = ()
        if all(self._cursors.state.slots[slot].adopted for slot in slots):
            return
        kind, key = NONE
        if key in await self._documents.load_meta(kind):
            return
        places = [
            (topic, partition)
            for topic, partitions in (await self._topics.topics()).items()
            for partition in range(partitions)
        ]
        names = [name for name in await self._groups.names() if self._may_be_earlier(name)]
        limit = asyncio.Semaphore(AT_ONCE)

        async def found(group: str) -> list[EarlierCursor]:
            async with limit:
                return await self._read_group(group, places)

        self._found = [one for some in await asyncio.gather(*map(found, names)) for one in some]

    def _may_be_earlier(self, group: str) -> bool:
        name = group.removeprefix(self._prefix)
        return group.startswith(self._prefix) and not name.startswith(MARKER) and group != self._service

    async def _read_group(self, group: str, places: Sequence[At]) -> list[EarlierCursor]:
        try:
            committed = await self._groups.committed(group, places)
        except PenstockError as error:
            if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TOPIC_NOT_FOUND):
                raise
            # It may not be read, or is not a group of consumers.
            log.warning("a consumer group cannot be read", extra={"group": group, "reason": error.message})
            return []
        # In a topic where the group has a cursor, what Kafka's tools reset counts as they committed it, and partitions without a
        # commit begin at their beginning, as they did.
        own = {
            topic
            for (topic, _), one in committed.items()
            if one.metadata.startswith(MAGIC) and cursor_of(one) is not None
        }
        found = [
            EarlierCursor(
                CursorKey(*place, group.removeprefix(self._prefix)), committed.get(place, BEGINNING), group
            )
            for place in places
            if place[0] in own
        ]
        if found:
            await self._check_unused(group)
        return found

    async def _check_unused(self, group: str) -> None:
        for member in await self._groups.members(group):
            if member.client_id.startswith(CLIENT):
                raise EarlierInUse(
                    ErrorKind.UNAVAILABLE,
                    f"a process of an earlier release at {member.host} consumes subscription {group}: this release serves "
                    "no subscriptions until all processes of earlier releases are stopped",
                )

    async def take_over(self, slots: Iterable[int]) -> None:
        """Save the cursors of slots, which were claimed after `read`. Raises as `Cursors.save`, and UNAVAILABLE."""
        new = {slot for slot in slots if not self._cursors.state.slots[slot].adopted}
        if not new:
            return
        wanted = [
            one
            for one in self._found
            if self._cursors.slot(one.key.topic, one.key.partition) in new
            and not self._cursors.state.has(one.key)
        ]
        ids = await self._topic_ids({one.key.topic for one in wanted})
        begins = await self._topics.begins(
            (one.key.topic, one.key.partition)
            for one in wanted
            if one.committed is BEGINNING and one.key.topic in ids
        )
        properties = await self._documents.load_meta(PROPERTIES)
        records = [_record(one, ids, begins, properties) for one in wanted]
        await self._cursors.save([one for one in records if one is not None])
        for one, record in zip(wanted, records, strict=True):
            if record is not None:
                extra = {"group": one.group, "topic": one.key.topic, "partition": one.key.partition}
                log.info("a cursor is taken over from a consumer group", extra=extra)
        # Behind the cursors: a process that ends between leaves the slot to be taken over again.
        await self._cursors.save([adoption(slot) for slot in sorted(new)])

    async def _topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for topic in sorted(topics):
            described = await self._topics.describe(topic)
            if described is not None:
                found[topic] = described.id
        return found


def _record(
    one: EarlierCursor, ids: Mapping[str, str], begins: Mapping[At, int], properties: Mapping[str, bytes]
) -> CursorRecord | None:
    """The cursor as it is saved; None if the topic was deleted, or the subscription in this partition."""
    cursor, key = cursor_of(one.committed), one.key
    if cursor is None or key.topic not in ids:
        return None
    if one.committed is BEGINNING:
        cursor = Cursor(begins[key.topic, key.partition])
    offsets = OffsetSet(cursor.mark)
    for first, last in cursor.ranges:
        offsets.add_range(first, last + 1)
    document = properties.get(f"{key.topic}/{key.subscription}")
    return CursorRecord(
        *(key.topic, key.partition, key.subscription),
        ids[key.topic],
        offsets.mark,
        offsets.take_changes(),
        properties=document if _is_properties(document) else None,
    )


def _is_properties(document: bytes | None) -> bool:
    try:
        msgspec.json.decode(document or b"", type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
