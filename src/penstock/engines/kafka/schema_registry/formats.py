"""The formats of records, for programs that read them from the brokers, whichever registry has the ids in front of values."""

from collections.abc import Sequence

from penstock.broker.records import RecordFormat, SchemaId
from penstock.engines.kafka.framing import Framing, UnknownSchemas
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.versions import BY_ID
from penstock.model.names import TopicName

from .own import OwnRegistrySchemas
from .schemas import RegistrySchemas

FramedSchemas = RegistrySchemas | OwnRegistrySchemas


class KafkaRecordFormats:
    """`broker.RecordFormats`."""

    def __init__(self, naming: Naming, registry: FramedSchemas) -> None:
        self._naming = naming
        self._registry = registry

    def version_of(self, schema_id: int) -> int:
        return BY_ID + schema_id

    async def of(
        self, topic: TopicName, values: Sequence[int] = (), keys: Sequence[int] = ()
    ) -> RecordFormat:
        name = self._naming.kafka_name(topic.base)
        registry = self._registry
        framing = registry.framing(topic)
        if framing.own and framing.empty and not values:
            return RecordFormat(topic=name, registry=False)
        unknown = UnknownSchemas(
            {_head(one) for one in values if framing.meaning(one, of_keys=False) is None},
            {_head(one) for one in keys if framing.meaning(one, of_keys=True) is None},
        )
        if unknown.ids or unknown.keys or framing.keyed is None:
            await registry.learn_ids(topic, unknown)
            framing = registry.framing(topic)
        return RecordFormat(
            topic=name,
            registry=True,
            own=framing.own,
            keyed=bool(framing.keyed),
            values=_meanings(framing, values, of_keys=False),
            keys=_meanings(framing, keys, of_keys=True),
        )


def _head(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _meanings(framing: Framing, numbers: Sequence[int], *, of_keys: bool) -> list[SchemaId]:
    return [one for number in numbers if (one := framing.meaning(number, of_keys=of_keys)) is not None]
