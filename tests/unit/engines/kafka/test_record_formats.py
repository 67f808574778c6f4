"""What other processes are told of how topics lie in Kafka."""

from typing import Any, cast

from tests.unit.engines.kafka.test_framing import TOPIC, framing

from penstock.engines.kafka.framing import Framing, UnknownSchemas, encode_indexes
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.schema_registry.formats import KafkaRecordFormats
from penstock.engines.kafka.versions import MESSAGE
from penstock.model.names import TopicName
from penstock.model.schema import SchemaVersion
from penstock.testing.clock import ManualClock


class Learned:
    """A registry that knows two more ids, one of them of keys."""

    def __init__(self, clock: ManualClock) -> None:
        self.asked: list[UnknownSchemas] = []
        self._framing = framing(clock)
        self._framing.keyed = None

    def framing(self, topic: TopicName) -> Framing:
        return self._framing

    async def learn(self, topic: TopicName) -> None: ...

    async def learn_ids(self, topic: TopicName, unknown: UnknownSchemas) -> None:
        self.asked.append(unknown)
        self._framing.keyed = True
        for head in unknown.ids:
            if head == b"\0\0\0\7":
                self._framing.know(7, 4, [encode_indexes((0,)), encode_indexes((0, 1)), encode_indexes((2,))])
            else:
                self._framing.guess_none(head)
        for head in unknown.keys:
            self._framing.know_key(int.from_bytes(head, "big"), 2)

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_a_topic_without_a_schema_in_the_servers_own_registry() -> None:
    learned = Learned(ManualClock())
    learned._framing = Framing(TOPIC, ManualClock(), keyed=False, own=True)
    formats = KafkaRecordFormats(Naming({"a/b": "other-"}), cast(Any, learned))
    found = await formats.of(TopicName.parse("a/b/t-partition-1"))
    assert (found.topic, found.registry, found.values, found.keys) == ("other-t", False, (), ())


async def test_another_process_opens_what_this_one_opens() -> None:
    clock = ManualClock()
    learned = Learned(clock)
    found = await KafkaRecordFormats(Naming({}), cast(Any, learned)).of(TOPIC, [258, 7, 8], [9])
    assert (found.topic, found.registry, found.keyed) == ("t", True, True)
    assert [(one.ids, one.keys) for one in learned.asked] == [({b"\0\0\0\7", b"\0\0\0\x08"}, {b"\0\0\0\x09"})]
    theirs = Framing(TOPIC, clock, keyed=found.keyed)
    for one in found.values:
        theirs.take(one, of_keys=False)
    for one in found.keys:
        theirs.take(one, of_keys=True)
    values: list[bytes | None] = [
        b"\0\0\0\1\2plain",
        b"\0\0\0\0\7\0first",
        b"\0\0\0\0\7" + encode_indexes((2,)) + b"third",
        b"\0\0\0\0\7" + encode_indexes((0, 1)) + b"second",
        b"\0\0\0\0\x08none",
    ]
    keys: list[bytes | None] = [b"\0\0\0\0\x09key", *([None] * 4)]
    ours = learned.framing(TOPIC)
    results = []
    for by in (ours, theirs):
        mine = [*keys], [*values]
        results.append((by.open(*mine, [None] * 5), mine))
    assert results[0] == results[1]
    versions, (opened_keys, opened) = results[1]
    assert versions is not None
    assert versions[1:] == [4, 4 + 2 * MESSAGE, 4 + MESSAGE, None]
    assert opened == [b"plain", b"first", b"third", b"second", values[4]]
    assert opened_keys[0] == b"key"
