"""The journal of cursors as a port of the core: `Cursors` of the topics that this process has open."""

from collections.abc import Collection, Mapping

import msgspec

from penstock.engines.attached.link import Moved
from penstock.engines.core.ports.cursors import OpenedCursor
from penstock.engines.kafka.ownership.ports import Replaced
from penstock.engines.kafka.ownership.records import CursorKey, CursorRecord, check_properties
from penstock.engines.kafka.ownership.writer import JournalWriter
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.subscription.store import CursorWriter


class JournalCursors(JournalWriter):
    """`core.ports.Cursors`. A topic whose slot another process owns raises `Moved`."""

    def writer(self, topic: KafkaTopic) -> CursorWriter:
        place = topic.place
        self.bind(topic.ledger, place.topic, place.partition, place.topic_id)
        return self

    def has(self, topic: KafkaTopic, name: str) -> bool:
        return self.cursors.state.has(_key(topic, name))

    def names(self, topic: KafkaTopic) -> Collection[str]:
        return self.cursors.known(topic.place.topic, topic.place.partition).keys()

    async def open(self, topic: KafkaTopic, name: str, *, refreshed: bool) -> OpenedCursor | None:
        """As `Cursors.open`. A cursor that does not fit its log begins as `load` says."""
        key, slot = _key(topic, name), self.cursors.slot(topic.place.topic, topic.place.partition)
        try:
            if key not in self.cursors.load(slot):
                return None
            if not refreshed:
                await topic.refresh()
            end = topic.next_offset if topic.cut_at is None else min(topic.next_offset, topic.cut_at)
            found = await self.load(key, topic.place.topic_id, min(topic.first_offset, end), end)
        except Replaced:
            raise Moved(topic.name) from None
        if found is None:
            return None
        cursor, document = found
        return OpenedCursor(
            cursor, {} if document is None else msgspec.json.decode(document, type=dict[str, str])
        )

    async def create(self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str]) -> None:
        document = msgspec.json.encode(properties) if properties else None
        check_properties(document)
        place = topic.place
        record = CursorRecord(place.topic, place.partition, name, place.topic_id, mark, properties=document)
        try:
            await self.cursors.save((record,))
        except Replaced:
            raise Moved(topic.name) from None


def _key(topic: KafkaTopic, name: str) -> CursorKey:
    return CursorKey(topic.place.topic, topic.place.partition, name)
