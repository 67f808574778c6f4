"""The operations that produce: a stream of records, and a batch."""

from typing import Final

import msgspec

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.protocols.confluent.content import content_type
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.media import parse_media_type
from penstock.protocols.http.operations import Table

from .call import V3Call
from .produce import Producing
from .record_shapes import Batch, BatchAnswer, Failed, FailedEntry, Record, Stored
from .stream import RecordStream
from .topics import ERRORS, FURTHER, MEDIA

table: Final = Table("REST proxy v3", "/rest/v3")

ENTRIES_MAX: Final = 10
BATCH: Final = ConfluentCode(422, 42208)

_TOPIC: Final = "/clusters/{cluster}/topics/{topic}"
_LATIN: Final = ("iso-8859-1", "latin1", "latin-1")


@table.on(
    "POST",
    f"{_TOPIC}/records",
    summary="Publish records, one JSON object after the other in a request of any length.",
    description="Each record is answered by one object, in their order, as soon as it is stored, while the body goes on: where it is, or"
    " `error_code` and `message`. The status is 200 then.",
    request=Record,
    answer=Stored,
    errors=ERRORS,
    media=MEDIA,
    further=(*FURTHER, (422, "42206: the body is empty.")),
)
async def records(call: V3Call) -> None:
    topic = call.topic
    call.caller.may_produce(topic)
    producing = Producing(call, topic)
    bytes_max = call.caller.context.limits.max_request_bytes
    stream = RecordStream(
        call.exchange, producing.publish, call.broker.clock, bytes_max, latin=_is_latin(call)
    )
    await stream.run(call.caller, lambda: call.caller.may_produce(topic))


def _is_latin(call: V3Call) -> bool:
    """Whether the body is ISO-8859-1 rather than UTF-8. Raises ConfluentError for anything else."""
    content_type(call.exchange, MEDIA)
    if call.exchange.encoding is not None:
        raise ConfluentError(ConfluentCode(415, 415), "HTTP 415 Unsupported Media Type")
    media = parse_media_type(call.exchange.headers.get("content-type", ""))
    charset = (media[1].get("charset") or "utf-8").lower() if media else "utf-8"
    if charset in _LATIN:
        return True
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise ConfluentError(ConfluentCode(400, 400), f"Bad Request: the charset {charset[:40]} is not taken")
    return False


@table.on(
    "POST",
    f"{_TOPIC}/records:batch",
    summary="Publish up to 10 records together.",
    request=Batch,
    answer=BatchAnswer,
    status=207,
    errors=ERRORS,
    media=MEDIA,
    further=(*FURTHER, (422, "42208: no entries, too many, or an id twice.")),
)
async def batch(call: V3Call) -> Answer:
    topic = call.topic
    call.caller.may_produce(topic)
    content_type(call.exchange, MEDIA)
    call.body = await call.exchange.body(call.caller.context.limits.max_request_bytes)
    given: Batch = call.json(Batch)
    ids = [one.id for one in given.entries]
    if not ids:
        raise ConfluentError(BATCH, "Batch error. Empty batch.")
    if len(ids) > ENTRIES_MAX:
        raise ConfluentError(
            BATCH, f"Batch error. Too many entries in batch: {len(ids)}, the most is {ENTRIES_MAX}."
        )
    if len(set(ids)) < len(ids):
        raise ConfluentError(BATCH, "Batch error. Entry ids are not distinct.")
    found = BatchAnswer([], [])
    outcomes = await Producing(call, topic).publish(given.entries)
    for name, one in zip(ids, outcomes, strict=True):
        if isinstance(one, Failed):
            found.failures.append(FailedEntry(name, one.error_code, one.message))
        else:
            one.id, one.error_code = name, None
            found.successes.append(one)
    return Answer(status=207, raw=msgspec.json.encode(found), headers={"content-type": MEDIA[0]})
