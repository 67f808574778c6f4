"""Which messages of a group share an entry."""

from collections.abc import Sequence
from typing import Final

from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage

BATCH_MESSAGES_MAX: Final = 1000  # Pulsar's batchingMaxMessages
BATCH_BYTES_MAX: Final = 1 << 20  # keeps one entry a reasonable unit of reading and delivery


def entries_of(messages: Sequence[OutMessage], chosen: list[int], *, batch: bool) -> list[list[int]]:
    """Cut messages into entries: where the schema version changes, round one that goes alone, at the bounds."""
    runs: list[list[int]] = []
    size = 0
    last: OutMessage | None = None
    for index in chosen:
        message = messages[index]
        alone = batch and _goes_alone(message)
        joins = (
            batch
            and last is not None
            and not alone
            and message.schema_version == last.schema_version
            and message.replicate_to == last.replicate_to
            and len(runs[-1]) < BATCH_MESSAGES_MAX
            and size + len(message.payload) <= BATCH_BYTES_MAX
        )
        if joins:
            runs[-1].append(index)
            size += len(message.payload)
        else:
            runs.append([index])
            size = len(message.payload)
        last = None if alone else message
    return runs


def _goes_alone(message: OutMessage) -> bool:
    properties = message.properties
    return (
        message.deliver_at != 0
        or message.encryption is not None
        or (properties is not None and REQUEST_TIMEOUT_PROPERTY in properties)
    )
