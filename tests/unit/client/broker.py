"""What a broker says, for transcripts without a socket."""

from penstock.model.message import OutMessage
from penstock.wire import entry as wire
from penstock.wire.frames import FIELD, Frame, FrameDecoder, encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandMessage, MessageIdData


def said(data: bytes | list[bytes]) -> list[str]:
    """The frames in `data`, each as `NAME field=value …`."""
    joined = data if isinstance(data, bytes) else b"".join(data)
    return [_line(frame) for frame in FrameDecoder().feed(joined)]


def frames(data: list[bytes]) -> list[Frame]:
    return list(FrameDecoder().feed(b"".join(data)))


def _line(frame: Frame) -> str:
    body = getattr(frame.command, FIELD[frame.type])
    parts = [BaseCommand.Type.Name(frame.command.type)]
    for field, value in body.ListFields():
        if field.name in ("producer_id", "consumer_id"):
            continue
        parts.append(f"{field.name}={_show(value)}")
    return " ".join(parts)


def _show(value: object) -> str:
    if isinstance(value, MessageIdData):
        text = f"{value.ledgerId}:{value.entryId}"
        if value.HasField("batch_index"):
            text += f".{value.batch_index}"
        return text + (f"{list(value.ack_set)}" if value.ack_set else "")
    if isinstance(value, str | bytes | int | bool):
        return str(value)
    if hasattr(value, "__getitem__"):
        return "[" + " ".join(_show(one) for one in value) + "]"
    return "{…}"


def connected(*, replies: bool = True, size: int | None = None) -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECTED)
    command.connected.server_version = "test"
    command.connected.protocol_version = 20
    if size is not None:
        command.connected.max_message_size = size
    if replies:
        command.connected.feature_flags.supports_request_reply = True
    return encode(command)


def delivery(
    entry_id: int,
    *payloads: bytes,
    ledger: int = 1,
    redeliveries: int = 0,
    ack_set: int | None = None,
    version: int | None = None,
    data: bytes | None = None,
) -> Frame:
    """MESSAGE of an entry of these payloads; more than one is a batch."""
    if data is None:
        data = wire.encode(
            [OutMessage(payload=payload) for payload in payloads],
            producer="p",
            sequence_id=entry_id * 10,
            publish_time=1,
            schema_version=version,
        ).data
    message = CommandMessage(consumer_id=7, redelivery_count=redeliveries)
    message.message_id.ledgerId, message.message_id.entryId = ledger, entry_id
    if ack_set is not None:
        message.ack_set.append(ack_set)
    return Frame(BaseCommand(type=BaseCommand.MESSAGE, message=message), data)
