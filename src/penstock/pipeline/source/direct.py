"""A range of a topic of Kafka, read from its brokers by a task, and decoded as what the server sends is.

The brokers are those of the user's options. That they hold the topic that the query was planned for is checked by the topic's
id. Ids of schemas in front of values are looked up at the server.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa

from penstock.broker.records import SchemaId
from penstock.client.access import Access
from penstock.engines.kafka.driver.ranges import LogEnds, RangeReader
from penstock.engines.kafka.driver.reader import OutOfRange
from penstock.engines.kafka.driver.record import Record
from penstock.engines.kafka.framing import Framing, UnknownSchemas
from penstock.engines.kafka.naming import ledger_of
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.logs import look
from penstock.pipeline.http.retry import retrying
from penstock.pipeline.options import revealed
from penstock.pipeline.rows.place import Place
from penstock.pipeline.rows.records import blocks, record_rows
from penstock.runtime.clock import LoopClock

from .cluster import PREFIX, KafkaTopic, id_meanings
from .offsets import Range

READERS_MAX: Final = 4  # that a process keeps for its next tasks
ATTEMPTS_MAX: Final = 6  # at a log that does not have an offset between its begin and its end
BACKOFF_S: Final = 0.1  # doubled each time
IDS_AT_ONCE: Final = 1000  # that the server is asked for
FRAMED_ROWS: Final = 8192  # decoded at once: fewer ids than a framing remembers
NONE_MS: Final = 60_000  # so long an id that the server does not explain means no schema

_readers: OrderedDict[tuple[tuple[str, str], ...], RangeReader] = OrderedDict()
_readers_of = os.getpid()
_inherited: list[
    object
] = []  # by a fork: without their threads, nothing may be done with readers, not even to end them


def read_direct(
    server: Access,
    properties: Mapping[str, str],
    topic: KafkaTopic,
    wanted: Range,
    place: Place,
    include: Sequence[str],
    *,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. Raises DataLoss if offsets are missing that the log had, or the topic was recreated;
    without `fail_on_data_loss` the rest is read. Raises UNAVAILABLE, UNAUTHENTICATED and refusals of the cluster."""
    given = {name: revealed(f"{PREFIX}{name}", text) for name, text in properties.items()}
    name = TopicName.parse(wanted.topic)
    framing = Framing(name, LoopClock(), own=topic.own) if topic.registry else None
    decode = partial(record_rows, place, include, framing=framing)
    with _reader(given) as reader:
        if not _is_planned(reader, server, topic, wanted, fail_on_data_loss=fail_on_data_loss):
            return
        chunks = _records(reader, topic, wanted, fail_on_data_loss=fail_on_data_loss)
        with closing(chunks):
            for block in blocks(chunks):
                if framing is None:
                    yield decode(block)
                    continue
                for at in range(0, len(block), FRAMED_ROWS):
                    yield _framed_rows(decode, framing, server, block[at : at + FRAMED_ROWS])


@contextmanager
def _reader(properties: Mapping[str, str]) -> Iterator[RangeReader]:
    """A reader of this process for one range; it is kept, unless an error ended the range."""
    global _readers_of
    if _readers_of != os.getpid():
        _inherited.extend(_readers.values())
        _readers.clear()
        _readers_of = os.getpid()
    key = tuple(sorted(properties.items()))
    reader = _readers.pop(key, None) or _made(properties)
    try:
        yield reader
    except GeneratorExit:  # the task wants no more rows
        _keep(key, reader)
        raise
    except BaseException:
        reader.close()
        raise
    _keep(key, reader)


def _made(properties: Mapping[str, str]) -> RangeReader:
    try:
        return RangeReader(properties)
    except PenstockError as error:
        raise PipelineError(f"options {PREFIX}…: {error.message}", error.kind) from None


def _keep(key: tuple[tuple[str, str], ...], reader: RangeReader) -> None:
    if key in _readers:
        reader.close()
        return
    _readers[key] = reader
    if len(_readers) > READERS_MAX:
        _readers.popitem(last=False)[1].close()


def _is_planned(
    reader: RangeReader, server: Access, topic: KafkaTopic, wanted: Range, *, fail_on_data_loss: bool
) -> bool:
    """Whether the brokers' topic is the one that the query was planned for. Raises PipelineError for another cluster."""
    if ledger_of(reader.topic_id(topic.name), wanted.partition) == wanted.ledger:
        return True
    with Calls(server) as client:
        now = retrying(lambda: look(client, [TopicName.parse(wanted.topic)])).logs or []
    if any(log.key == (wanted.topic, wanted.partition) and log.ledger == wanted.ledger for log in now):
        raise PipelineError(
            f"option {PREFIX}bootstrap.servers: the topic {topic.name} of these brokers is not the one that {server.url} has:"
            " they are of another cluster than the server's"
        )
    if fail_on_data_loss:
        raise DataLoss(
            f"{wanted.topic}, partition {wanted.partition}: the topic was deleted and made anew since the query was planned"
        )
    return False


def _records(
    reader: RangeReader, topic: KafkaTopic, wanted: Range, *, fail_on_data_loss: bool
) -> Generator[Sequence[Record]]:
    """The records of a range, as far as the log has them."""
    where = f"{wanted.topic}, partition {wanted.partition}"
    place = topic.name, wanted.partition
    at, attempts = wanted.start, 0
    while at < wanted.end:
        try:
            with closing(reader.read(place, at, wanted.end)) as chunks:
                for chunk in chunks:
                    at, attempts = chunk[-1].offset() + 1, 0
                    yield chunk
            return
        except OutOfRange:
            begin = reader.begin(place)
            loss = f"{where}: offsets {at} to {min(begin, wanted.end) - 1} are gone"
            if begin <= at:
                attempts += 1
                loss = f"{where}: the log does not have offset {at}"
                if attempts < ATTEMPTS_MAX:  # brokers do not agree on its end yet
                    time.sleep(BACKOFF_S * 2.0**attempts)
                    continue
                begin = wanted.end
        except LogEnds as ends:
            begin, loss = wanted.end, f"{where}: the log ends at {ends.offset}, before {wanted.end}"
        if fail_on_data_loss:
            raise DataLoss(loss)
        at = begin


def _framed_rows(
    decode: Callable[[Sequence[Record]], pa.RecordBatch],
    framing: Framing,
    server: Access,
    records: Sequence[Record],
) -> pa.RecordBatch:
    while True:
        try:
            return decode(records)
        except UnknownSchemas as unknown:
            _learn(framing, server, unknown)


def _learn(framing: Framing, server: Access, unknown: UnknownSchemas) -> None:
    """Ask the server what ids mean. Once it has explained none of many, the others are content, too."""
    values, keys = (sorted(int.from_bytes(one, "big") for one in ids) for ids in (unknown.ids, unknown.keys))
    asked: dict[bool, set[int]] = {of_keys: set() for of_keys in (False, True)}
    with Calls(server) as client:
        for at in range(0, max(len(values), len(keys), 1), IDS_AT_ONCE):
            some, of = values[at : at + IDS_AT_ONCE], keys[at : at + IDS_AT_ONCE]
            answer = retrying(partial(id_meanings, client, str(framing.topic), some, of))
            framing.keyed = answer["keyed"]
            found = 0
            for of_keys, part in ((False, "values"), (True, "keys")):
                for one in answer[part]:
                    meaning = msgspec.convert(one, SchemaId)
                    framing.take(meaning, of_keys=of_keys)
                    asked[of_keys].add(meaning.id)
                    found += meaning.version is not None
            if not found:
                break
    for of_keys, numbers in ((False, values), (True, keys)):
        for number in set(numbers) - asked[of_keys]:
            framing.take(SchemaId(id=number, version=None, for_ms=NONE_MS), of_keys=of_keys)
