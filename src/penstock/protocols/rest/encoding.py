"""Parts of entries to the JSON of their messages.

Messages that are nothing but payloads are written by columns: what they share is made once, and their values are
encoded together. The others are made one by one (`messages`), and so are those whose values cannot be decoded.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.message import PlainMessages
from penstock.protocols.values import Values

from .batch_ids import alone_texts, id_parts
from .messages import ENCODE_ERRORS, ReadMessage, encode_messages, json_of_each, show, show_closed
from .parts import Decoding, Part

_START: Final = '{"messageId":"'


class Shown(msgspec.Struct):
    """Messages as they are shown: the JSON of each, and the schema versions that occur."""

    texts: list[str]
    versions: set[int | None]


def id_in(text: str) -> str:
    """The id in the JSON of a message."""
    return text[len(_START) : text.index('"', len(_START))]


class Encoding:
    """Writes the messages of one request."""

    def __init__(self, decoding: Decoding, values: Values) -> None:
        self._decoding = decoding
        self._values = values

    def encode(self, parts: Sequence[Part]) -> Shown:
        """The messages of `parts`, in their order; none of the parts is empty."""
        shown = Shown([], set())
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
        if not self._decoding.numbered:
            columns = columns._replace(offsets=repeat("null"))
        values = self._values.decode_plain(columns.payloads, plain.schema_version)
        if values is None:
            return False
        try:
            texts = json_of_each(values)
        except ENCODE_ERRORS:
            return False
        offset_at = f'","partition":{first.topic.partition},"offset":'
        value_at, ending = ',"key":null,"value":', _ending(plain, first.redeliveries)
        start = _START + columns.id_start
        shown.texts += [
            f"{start}{id_end}{offset_at}{offset}{value_at}{text}{middle}{sequence_id}{ending}"
            for id_end, offset, text, middle, sequence_id in zip(
                columns.id_ends, columns.offsets, texts, columns.middles, columns.sequence_ids, strict=False
            )
        ]
        shown.versions.add(plain.schema_version)
        return True

    def _one_by_one(self, run: Sequence[Part], shown: Shown) -> None:
        each = [one for part in run for one in self._each(part)]
        shown.versions.update([one.schema_version for one in each])
        shown.texts += encode_messages(each)

    def _each(self, part: Part) -> list[ReadMessage]:
        topic, entry, opened, redeliveries = part.topic, part.entry, part.opened, part.redeliveries
        numbered = self._decoding.numbered
        if isinstance(opened, PlainMessages):
            opened = self._decoding.messages(entry)
        if isinstance(opened, PenstockError):
            batched = entry.count > 1
        else:
            batched = opened[0].index >= 0
        start, ends = _ids(part) if batched else ("", [str(topic.id_of(entry, -1))])
        places = zip(ends, part.places, strict=True)
        if isinstance(opened, PenstockError):
            return [
                show_closed(
                    topic.partition, start + end, entry, place, redeliveries, opened, numbered=numbered
                )
                for end, place in places
            ]
        return [
            show(self._values, topic.partition, start + end, opened[place], redeliveries, numbered=numbered)
            for end, place in places
        ]


class _Columns(NamedTuple):
    """The fields that differ from message to message, with an item for each of them. `middles` are between the value and the
    sequence id; all ids begin with `id_start`."""

    id_start: str
    id_ends: Sequence[str]
    offsets: Iterable[int | str]
    payloads: Sequence[bytes]
    middles: Iterable[str]
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
        topic, redeliveries, ledger = first.topic, first.redeliveries, first.entry.ledger
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
                or part.entry.ledger != ledger
            ):
                break
            until += 1
    return parts[at:until]


def _batch_columns(part: Part, plain: PlainMessages) -> _Columns:
    places, payloads, first, offset = part.places, plain.payloads, plain.sequence_id, part.entry.offset
    middles = repeat(_middle(plain.publish_time))
    start, ends = _ids(part)
    if isinstance(places, range):
        low, high = places.start, places.stop
        offsets = range(offset + low, offset + high)
        return _Columns(start, ends, offsets, payloads[low:high], middles, range(first + low, first + high))
    return _Columns(
        start,
        ends,
        [offset + place for place in places],
        [payloads[place] for place in places],
        middles,
        [first + place for place in places],
    )


def _alone_columns(run: Sequence[Part]) -> _Columns:
    topic = run[0].topic
    plain = [part.opened for part in run if isinstance(part.opened, PlainMessages)]
    return _Columns(
        "",
        alone_texts(run[0].entry.ledger, [part.entry.entry_id for part in run], topic.name.partition),
        [part.entry.offset for part in run],
        [one.payloads[0] for one in plain],
        [_middle(one.publish_time) for one in plain],
        [one.sequence_id for one in plain],
    )


def _middle(publish_time: int) -> str:
    """The text between the value and the sequence id."""
    return f',"properties":{{}},"publishTime":{publish_time},"eventTime":null,"sequenceId":'


def _ids(part: Part) -> tuple[str, Sequence[str]]:
    """What the ids of a part of a batch begin with, and how each goes on."""
    topic, places, entry = part.topic, part.places, part.entry
    if 4 * len(places) < entry.count:
        return "", [str(topic.id_of(entry, place)) for place in places]
    start, ends = id_parts(entry.ledger, entry.entry_id, topic.name.partition, entry.count)
    if isinstance(places, range):
        return start, ends if len(places) == len(ends) else ends[places.start : places.stop]
    return start, [ends[place] for place in places]


def _ending(plain: PlainMessages, redeliveries: int | None) -> str:
    """What follows the sequence id of every message."""
    producer = json_of_each([plain.producer_name])[0]
    version = "null" if plain.schema_version is None else plain.schema_version
    counted = "" if redeliveries is None else f',"redeliveryCount":{redeliveries}'
    return f',"producerName":{producer},"schema_version":{version}{counted}}}'
