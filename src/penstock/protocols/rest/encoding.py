"""Parts of entries to the JSON of their messages.

Messages that are nothing but payloads are written by columns: what they share is made once, and their values are
encoded together. The others are made one by one (`messages`), and so are those whose values cannot be decoded.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from penstock.broker.log import Log
from penstock.model.errors import PenstockError
from penstock.model.message import PlainMessages
from penstock.protocols.values import Values

from .batch_ids import alone_texts, id_texts
from .messages import ENCODE_ERRORS, ReadMessage, encode_messages, json_of_each, show, show_closed
from .parts import Decoding, Part


class Shown(msgspec.Struct):
    """Messages as they are shown: their ids, the JSON of each, and the schema versions that occur."""

    ids: list[str]
    texts: list[str]
    versions: set[int | None]


class Encoding:
    """Writes the messages of one request."""

    def __init__(self, decoding: Decoding, values: Values) -> None:
        self._decoding = decoding
        self._values = values

    def encode(self, parts: Sequence[Part]) -> Shown:
        """The messages of `parts`, in their order; none of the parts is empty."""
        shown = Shown([], [], set())
        at = 0
        while at < len(parts):
            run = _run(parts, at)
            at += len(run)
            if not self._plain(run, shown):
                self._one_by_one(run, shown)
        return shown

    def _plain(self, run: Sequence[Part], shown: Shown) -> bool:
        """Add messages that are nothing but payloads; False for others, and those to be decoded one by one."""
        first = run[0]
        plain = first.opened
        if not isinstance(plain, PlainMessages):
            return False
        columns = _batch_columns(first, plain) if plain.batched else _alone_columns(run)
        values = self._values.decode_plain(columns.payloads, plain.schema_version)
        if values is None:
            return False
        try:
            texts = json_of_each(values)
        except ENCODE_ERRORS:
            return False
        partition = f'","partition":{first.topic.partition},"offset":'
        ending = _ending(plain, first.redeliveries)
        ids, offsets, _, times, sequence_ids = columns
        shown.texts += [
            f'{{"messageId":"{text_id}{partition}{offset},"key":null,"value":{text},"properties":{{}},"publishTime":{time}'
            f',"eventTime":null,"sequenceId":{sequence_id}{ending}'
            for text_id, offset, text, time, sequence_id in zip(
                ids, offsets, texts, times, sequence_ids, strict=False
            )
        ]
        shown.ids += ids
        shown.versions.add(plain.schema_version)
        return True

    def _one_by_one(self, run: Sequence[Part], shown: Shown) -> None:
        each = [one for part in run for one in self._each(part)]
        shown.ids += [one.message_id for one in each]
        shown.versions.update([one.schema_version for one in each])
        shown.texts += encode_messages(each)

    def _each(self, part: Part) -> list[ReadMessage]:
        topic, entry, opened, redeliveries = part.topic, part.entry, part.opened, part.redeliveries
        if isinstance(opened, PlainMessages):
            opened = self._decoding.messages(entry)
        if isinstance(opened, PenstockError):
            ids = _ids(topic, part) if entry.count > 1 else [str(topic.id_of(entry, -1))]
            return [
                show_closed(topic.partition, text_id, entry, place, redeliveries, opened)
                for text_id, place in zip(ids, part.places, strict=True)
            ]
        ids = _ids(topic, part) if opened[0].index >= 0 else [str(topic.id_of(entry, -1))]
        return [
            show(self._values, topic.partition, text_id, opened[place], redeliveries)
            for text_id, place in zip(ids, part.places, strict=True)
        ]


class _Columns(NamedTuple):
    """What differs from message to message; each has an item for each of them."""

    ids: list[str]
    offsets: Iterable[int]
    payloads: Sequence[bytes]
    times: Iterable[int]
    sequence_ids: Iterable[int]


def _run(parts: Sequence[Part], at: int) -> Sequence[Part]:
    """The parts from `at` on that are written together: a batch, messages sent alone that share all they can, or what is
    more than payloads."""
    first, until = parts[at], at + 1
    plain = first.opened
    if not isinstance(plain, PlainMessages):
        while until < len(parts) and not isinstance(parts[until].opened, PlainMessages):
            until += 1
    elif not plain.batched:
        topic, redeliveries = first.topic, first.redeliveries
        producer, version = plain.producer_name, plain.schema_version
        for part in parts[until:]:
            other = part.opened
            if (
                not isinstance(other, PlainMessages)
                or other.batched
                or other.producer_name != producer
                or other.schema_version != version
                or part.redeliveries != redeliveries
                or part.topic is not topic
            ):
                break
            until += 1
    return parts[at:until]


def _batch_columns(part: Part, plain: PlainMessages) -> _Columns:
    places, payloads, first, offset = part.places, plain.payloads, plain.sequence_id, part.entry.offset
    times = repeat(plain.publish_time)
    ids = _ids(part.topic, part)
    if isinstance(places, range):
        low, high = places.start, places.stop
        return _Columns(
            ids,
            range(offset + low, offset + high),
            payloads[low:high],
            times,
            range(first + low, first + high),
        )
    return _Columns(
        ids,
        [offset + place for place in places],
        [payloads[place] for place in places],
        times,
        [first + place for place in places],
    )


def _alone_columns(run: Sequence[Part]) -> _Columns:
    topic = run[0].topic
    plain = [part.opened for part in run if isinstance(part.opened, PlainMessages)]
    return _Columns(
        alone_texts(topic.ledger, [part.entry.entry_id for part in run], topic.name.partition),
        [part.entry.offset for part in run],
        [one.payloads[0] for one in plain],
        [one.publish_time for one in plain],
        [one.sequence_id for one in plain],
    )


def _ids(topic: Log, part: Part) -> list[str]:
    """The ids of a part of a batch."""
    places, entry = part.places, part.entry
    if 4 * len(places) < entry.count:
        return [str(topic.id_of(entry, place)) for place in places]
    ids = id_texts(topic.ledger, entry.entry_id, topic.name.partition, entry.count)
    return ids if len(places) == len(ids) else [ids[place] for place in places]


def _ending(plain: PlainMessages, redeliveries: int | None) -> str:
    """What follows the sequence id of every message."""
    producer = json_of_each([plain.producer_name])[0]
    version = "null" if plain.schema_version is None else plain.schema_version
    counted = "" if redeliveries is None else f',"redeliveryCount":{redeliveries}'
    return f',"producerName":{producer},"schema_version":{version}{counted}}}'
