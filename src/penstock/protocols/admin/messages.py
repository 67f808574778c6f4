"""Messages one by one: of a backlog, of a topic, by their place; the payload, with the rest in headers as Pulsar has it."""

import asyncio
from typing import Any, Final

import msgspec

from penstock.broker.log import Log
from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message
from penstock.protocols.http.answers import Answer, ExactName
from penstock.wire import entry as wire
from penstock.wire.contents import payload_size
from penstock.wire.entry import whole_batch

from .call import Call
from .operations import SUBSCRIPTION, TOPIC, Table
from .stats import iso_time
from .subscriptions import of_one_partition, offset_in_backlog, read_position

table = Table()

# Entries of a backlog that is analyzed: Pulsar's subscriptionBacklogScanMaxEntries.
SCANNED_MAX: Final = 10_000
SCANNED_AT_ONCE: Final = 256

# Clients split the body if they find the first; the second counts the stored bytes.
BATCH_HEADER: Final = "X-Pulsar-num-batch-message"
BATCH_SIZE_HEADER: Final = "X-Pulsar-batch-size"
PROPERTIES_HEADER: Final = ExactName("X-Pulsar-PROPERTY")  # an object of a message's properties


async def _log(call: Call) -> Topic:
    """The one log of the topic in the path; raises METHOD_NOT_ALLOWED for a partitioned topic as a whole."""
    name = call.consumed_topic
    if call.broker.topics.partitions(name):
        raise PenstockError(
            ErrorKind.METHOD_NOT_ALLOWED, "looking at messages goes by partition: name one of the topic's"
        )
    return await call.broker.topics.get(name, create=False)


@table.on("GET", f"{SUBSCRIPTION}/position/{{position}}")
async def peek(call: Call) -> Answer:
    """The n-th message of the backlog, counted from 1: its payload, with the rest in headers."""
    position = call.number("position")
    found = await of_one_partition(call, "looking into a backlog")
    if position < 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "positions count from 1")
    offset = offset_in_backlog(found, position - 1)
    return await _message(call, found.topic, offset, f"the backlog has no message {position}")


@table.on("GET", f"{TOPIC}/examinemessage", query=("initialPosition", "messagePosition"))
async def examine(call: Call) -> Answer:
    """The n-th message of a topic, counted from 1 at `initialPosition` (`earliest`, or `latest`, the default)."""
    log = await _log(call)
    start = call.query.get("initialPosition", "latest").lower()
    if start not in ("earliest", "latest"):
        raise PenstockError(ErrorKind.BAD_PARAMETER, "initialPosition must be earliest or latest")
    position = max(1, call.query_number("messagePosition", 1))
    bounds = log.bounds
    offset = bounds.first_offset + position - 1 if start == "earliest" else bounds.next_offset - position
    if not bounds.first_offset <= offset < bounds.next_offset:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"the topic has no message {position}")
    return await _message(call, log, offset, f"the topic has no message {position}")


@table.on("GET", f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}")
async def by_id(call: Call) -> Answer:
    """The message at a place of the log; a batch as a whole, uncompressed, with `X-Pulsar-num-batch-message`."""
    log, ledger, number = await _log(call), call.number("ledger"), call.number("entry")
    if ledger != log.ledger:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, "Message id not found")
    entry = await log.entry(number)
    batch = whole_batch(entry)
    if batch is None:
        return _shown(call, log, entry, 0)
    message, count = batch
    headers = _headers(log, number, message)
    headers[BATCH_HEADER] = str(count)
    headers[BATCH_SIZE_HEADER] = str(payload_size(entry.data))
    return Answer(raw=message.payload, headers=headers)


async def _message(call: Call, log: Log, offset: int, missing: str) -> Answer:
    entries = await log.read_at(offset, 1)
    if not entries:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, missing)
    return _shown(call, log, entries[0], offset - entries[0].offset)


def _shown(call: Call, log: Log, entry: Entry, index: int) -> Answer:
    messages = wire.decode(entry)
    message = messages[min(max(0, index), len(messages) - 1)]
    return Answer(raw=message.payload, headers=_headers(log, entry.entry_id, message))


def _headers(topic: Log, entry_id: int, message: Message) -> dict[str, str]:
    place = f"{topic.ledger}:{entry_id}" + (f":{message.index}" if message.index >= 0 else "")
    headers = {
        "content-type": "application/octet-stream",
        "X-Pulsar-Message-ID": place,
        "X-Pulsar-publish-time": iso_time(message.publish_time),
        "X-Pulsar-producer-name": message.producer_name,
        "X-Pulsar-sequence-id": str(message.sequence_id),
    }
    if message.event_time:
        headers["X-Pulsar-event-time"] = iso_time(message.event_time)
    if message.deliver_at:
        headers["X-Pulsar-deliver-at-time"] = iso_time(message.deliver_at)
    if message.key is not None:
        headers["X-Pulsar-partition-key"] = message.key
        headers["X-Pulsar-partition-key-b64-encoded"] = str(message.key_is_base64).lower()
    if message.null_value:
        headers["X-Pulsar-null-value"] = "true"
    # Clients of today read the object, older ones a header for each property.
    headers[PROPERTIES_HEADER] = _ascii_json(message.properties)
    headers |= {f"X-Pulsar-PROPERTY-{name}": value for name, value in message.properties.items()}
    return {name: value for name, value in headers.items() if _fits(name) and _fits(value)}


def _ascii_json(properties: dict[str, str]) -> str:
    text = msgspec.json.encode(properties).decode()
    return "".join(c if c.isascii() and c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _fits(text: str) -> bool:
    """Whether a header can carry it: the message's own texts are anything."""
    return text.isascii() and text.isprintable()


# -- ids, and what lies before them


@table.on("GET", f"{TOPIC}/messageid/{{timestamp}}")
async def id_at_time(call: Call) -> dict[str, Any]:
    """The id of the first message published at or after a time (ms since the epoch); past the last, the next one's."""
    log = await _log(call)
    entry = await log.entry_at(await log.offset_at_time(call.number("timestamp")))
    return {
        "ledgerId": log.ledger,
        "entryId": entry,
        "partitionIndex": log.name.partition,
        "batchIndex": -1,
    }


@table.on("POST", f"{SUBSCRIPTION}/analyzeBacklog", body=dict[str, Any] | str)
async def analyze(call: Call) -> dict[str, Any]:
    """Count a backlog, from a message on if the body has its id; no filter rejects anything.

    Of a long backlog the first entries are counted, and `aborted` says so, as in Pulsar.
    """
    found = await of_one_partition(call, "analyzing a backlog")
    log, mark = found.topic, found.figures().mark
    if call.content.strip() not in (b"", b"null", b"{}"):
        position = read_position(call.content)
        mark = max(mark, await log.offset_after(position.target, inclusive=True))
    ids: list[str] = []
    entries = messages = scanned = 0
    at, end = await log.entry_at(mark), log.bounds.next_entry
    while at < end and scanned < SCANNED_MAX:
        read = await log.read(at, SCANNED_AT_ONCE)
        if not read:
            break
        for entry in read:
            left = entry.count - found.acknowledged(entry.offset, entry.count).bit_count()
            if left:
                entries += 1
                messages += left
                ids = [ids[0] if ids else f"{log.ledger}:{entry.entry_id}", f"{log.ledger}:{entry.entry_id}"]
        scanned += len(read)
        at = read[-1].entry_id + 1
        await asyncio.sleep(0)
    body: dict[str, Any] = {
        "entries": entries,
        "messages": messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": at < end,
    }
    if ids:
        body |= {"firstMessageId": ids[0], "lastMessageId": ids[1]}
    return body
