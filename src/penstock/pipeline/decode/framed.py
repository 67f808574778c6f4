"""Values that begin with the id of their schema in a registry (Confluent's framing), several schemas in one column.

    0x00 | the schema's id, 4 bytes, big-endian | (Protobuf: message indexes) | payload

Message indexes are zigzag varints: their number, then the place of a message among those of its file, of one within it, …
A single 0 is the first message.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.model.subjects import HEAD_BYTES, INDEXES_MAX
from penstock.pipeline.errors import PipelineError

from .decoders import decoder_for
from .leaves import span_array
from .payloads import bounds, decode
from .raw import Ints, Spans
from .shapes import arrow_type
from .typed import merge

INDEXES_BYTES_MAX: Final = 5 * (INDEXES_MAX + 1)
UNKNOWN_MAX: Final = 16  # ids that a registry lacks and is asked for, in one batch: values that are no framing have no end of them

Writers = Callable[[int, bool], SchemaInfo | None]  # by id, and whether the registry may be asked


def decode_framed(
    payloads: pa.Array, writers: Writers, reader: SchemaInfo, wanted: DataType
) -> tuple[pa.Array, dict[int, str]]:
    """As `payloads.decode`, each value by the schema whose id it begins with, as `reader` sees it. `writers` returns the schema
    of an id, None if there is none, or if it is not known and may not be asked for."""
    data, begins, ends = bounds(payloads)
    room: Any = np.zeros(len(data) + HEAD_BYTES, np.uint8)
    room[: len(data)] = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(data) + 1,), ">u4", room.data, 1, (1,))
    valid = np.asarray(payloads.is_valid())
    framed = valid & (ends - begins >= HEAD_BYTES)
    framed &= room[begins] == 0
    wrong = dict.fromkeys(
        np.flatnonzero(valid & ~framed).tolist(), "value: it does not begin with 0x00 and a schema's id"
    )
    arrow = arrow_type(wanted)
    columns, rows = [], []
    unknown = 0
    ids, counts = np.unique(words[begins[framed]], return_counts=True)
    numbers = np.where(framed, words[np.minimum(begins, len(data))], 0)
    for number in ids[np.argsort(-counts, kind="stable")].tolist():  # those of many values first
        index = np.flatnonzero(framed & (numbers == number))
        found, why = None, f"value: schema id {number}: the registry does not have it"
        try:
            found = writers(number, unknown < UNKNOWN_MAX)
        except PenstockError as error:
            if error.kind is not ErrorKind.BAD_VALUE_SCHEMA:
                raise
            why = f"value: schema id {number}: {error.message}"
        if found is None:
            if unknown >= UNKNOWN_MAX:
                why = f"value: schema id {number}: not asked for, as the registry lacks {UNKNOWN_MAX} others of these values"
            unknown += 1
            wrong |= dict.fromkeys(index.tolist(), why)
            continue
        starts, groups = begins[index] + HEAD_BYTES, [(found, np.arange(len(index)))]
        if found.type is SchemaType.PROTOBUF_NATIVE:
            starts, groups = _messages(found, room, starts, ends[index])
        for writer, among in groups:
            there = index[among]
            part = span_array(Spans(starts[among], ends[there], None), room, pa.binary())
            column, errors = _decoded(part, writer, reader, wanted)
            columns.append(column)
            rows.append(there)
            wrong |= {int(there[row]): reason for row, reason in errors.items()}
    taken = np.zeros(len(payloads), np.bool_)
    for there in rows:
        taken[there] = True
    left = np.flatnonzero(~taken)
    if len(left):
        wrong |= {
            row: "value: the message indexes are not of its schema"
            for row in left.tolist()
            if framed[row] and row not in wrong
        }
        columns.append(pa.nulls(len(left), arrow))
        rows.append(left)
    if not columns:
        return pa.nulls(0, arrow), wrong
    return merge(columns, rows, len(payloads)), wrong


def _decoded(
    part: pa.Array, writer: SchemaInfo, reader: SchemaInfo, wanted: DataType
) -> tuple[pa.Array, dict[int, str]]:
    try:
        return decode(decoder_for(writer, reader, wanted), part)
    except PipelineError as error:
        return pa.nulls(len(part), arrow_type(wanted)), dict.fromkeys(
            range(len(part)), f"value: {error.message}"
        )


def _messages(
    schema: SchemaInfo, data: Any, starts: Ints, ends: Ints
) -> tuple[Ints, list[tuple[SchemaInfo, Ints]]]:
    """Where the payloads begin, and the rows of each message of a Protobuf file; without those whose indexes name none."""
    from penstock.codec.proto.native import places_of, with_message

    rows: dict[tuple[int, ...], list[int]] = {}
    found = starts.copy()
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start < end and data[start] == 0:
            rows.setdefault((0,), []).append(row)
            found[row] = start + 1
        elif indexes := _indexes(data[start : min(end, start + INDEXES_BYTES_MAX)].tobytes()):
            place, size = indexes
            rows.setdefault(place, []).append(row)
            found[row] = start + size
    places = places_of(schema.data)
    groups = []
    for place, among in rows.items():
        writer = with_message(schema, places.index(place)) if place in places else None
        if writer is not None:
            groups.append((writer, np.array(among)))
    return found, groups


def _indexes(value: bytes) -> tuple[tuple[int, ...], int] | None:
    """A message's place and how many bytes it takes; None if there is none."""
    numbers: list[int] = []
    number = shift = 0
    for at, byte in enumerate(value):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte >= 0x80:
            continue
        if number & 1:  # zigzag: below 0
            return None
        numbers.append(number >> 1)
        if numbers[0] > INDEXES_MAX:
            return None
        if len(numbers) == numbers[0] + 1:
            return tuple(numbers[1:]), at + 1
        number = shift = 0
    return None
