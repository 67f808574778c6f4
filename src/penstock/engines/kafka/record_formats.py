"""How topics lie in Kafka, for programs that read its records themselves: their names there, and the ids of their schemas."""

from collections.abc import Sequence

from penstock.broker.records import RecordFormat, SchemaId
from penstock.model.names import TopicName

from .framing import Framing, Framings, UnknownSchemas
from .naming import Naming


class KafkaRecordFormats:
    """`broker.RecordFormats`; `framings` is None without a schema registry."""

    def __init__(self, naming: Naming, framings: Framings | None) -> None:
        self._naming = naming
        self._framings = framings

    async def of(
        self, topic: TopicName, values: Sequence[int] = (), keys: Sequence[int] = ()
    ) -> RecordFormat:
        name = self._naming.kafka_name(topic.base)
        framings = self._framings
        if framings is None:
            return RecordFormat(topic=name, registry=False)
        framing = framings.framing(topic)
        unknown = UnknownSchemas(
            {_head(one) for one in values if framing.meaning(one, of_keys=False) is None},
            {_head(one) for one in keys if framing.meaning(one, of_keys=True) is None},
        )
        if unknown.ids or unknown.keys or framing.keyed is None:
            await framings.learn_ids(topic, unknown)
            framing = framings.framing(topic)
        return RecordFormat(
            topic=name,
            registry=True,
            keyed=bool(framing.keyed),
            values=_meanings(framing, values, of_keys=False),
            keys=_meanings(framing, keys, of_keys=True),
        )


def _head(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _meanings(framing: Framing, numbers: Sequence[int], *, of_keys: bool) -> list[SchemaId]:
    return [one for number in numbers if (one := framing.meaning(number, of_keys=of_keys)) is not None]
