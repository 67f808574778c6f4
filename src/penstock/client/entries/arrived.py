"""Entries as they arrive."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.contents import BODY_AT, MAGIC, METADATA_AT
from penstock.wire.frames import Frame, mask_of
from penstock.wire.metadata import parse_metadata, schema_version_number, signed
from penstock.wire.pulsar_pb2 import MessageIdData

Place = tuple[int, int]  # ledger and entry

_BATCH_MAX: Final = 1_000_000  # messages; more are damaged metadata


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """An entry that a broker sent. Bit i of `mask` is set for message i of it, unless it is acknowledged already.

    Times are in ms since the epoch, `deliver_at` 0: at once. `index` is the number of its last message if the
    cluster numbers entries and shows it. An entry that cannot be understood counts as one message.
    """

    ledger: int
    entry_id: int
    count: int
    mask: int
    publish_time: int
    deliver_at: int
    data: bytes
    index: int | None
    redeliveries: int
    schema_version: int | None

    @property
    def place(self) -> Place:
        return self.ledger, self.entry_id


def read_arrived(frame: Frame) -> Arrived:
    """The entry of a MESSAGE."""
    command, data, broker = frame.command.message, frame.entry, frame.broker
    at = BODY_AT if data.startswith(MAGIC) else 0
    start = at + METADATA_AT
    count, publish_time, deliver_at, version = 1, 0, 0, None
    try:
        metadata = parse_metadata(data[start : start + int.from_bytes(data[at:start], "big")])
        count = min(max(1, metadata.num_messages_in_batch), _BATCH_MAX)
        publish_time, deliver_at = metadata.publish_time, metadata.deliver_at_time
        if metadata.HasField("schema_version"):
            version = schema_version_number(metadata.schema_version)
    except PenstockError:
        pass  # the decoder reports the error
    mask = (1 << count) - 1
    if command.ack_set:
        mask &= mask_of(command.ack_set)
    place = command.message_id
    return Arrived(
        signed(place.ledgerId),
        signed(place.entryId),
        count,
        mask,
        publish_time,
        deliver_at,
        data,
        broker.index if broker is not None and broker.HasField("index") else None,
        command.redelivery_count,
        version,
    )


def read_id(data: MessageIdData) -> MessageId:
    """A message id of the protocol."""
    index = data.batch_index if data.HasField("batch_index") else -1
    size = data.batch_size if index >= 0 else 0
    return MessageId(signed(data.ledgerId), signed(data.entryId), data.partition, index, size)
