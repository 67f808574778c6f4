"""Messages built a column at a time are those that `penstock.wire` reads one by one."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.entry import Entry
from penstock.model.message import Message
from penstock.model.names import TopicName
from penstock.pipeline.encode import binary
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import OpenedTopic
from penstock.pipeline.sink.entries import BYTES_MAX, MESSAGES_MAX, BatchBuilder
from penstock.pipeline.sink.messages import columns_of, payloads
from penstock.pipeline.sink.target import Target
from penstock.wire import entry as wire
from penstock.wire.bulk import COMPRESSIONS
from penstock.wire.entry import admit
from penstock.wire.metadata import integer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
TIMES = st.integers(1, 1 << 52).map(
    lambda us: datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
)
STRING_MAP = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=300),
            "key": st.none() | TEXTS,
            "properties": st.none() | st.lists(st.tuples(TEXTS, TEXTS), max_size=3, unique_by=lambda p: p[0]),
            "event_time": st.none() | TIMES,
            "ordering_key": st.none() | st.binary(max_size=20),
        }
    ),
    min_size=1,
    max_size=40,
)
TYPES: dict[str, Any] = {
    "value": pa.binary(),
    "key": pa.string(),
    "properties": STRING_MAP,
    "event_time": pa.timestamp("us", tz="UTC"),
    "ordering_key": pa.binary(),
}


def frame(rows: list[dict[str, Any]], **types: Any) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    fields = {name: kind for name, kind in (TYPES | types).items() if name in rows[0]}
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(fields.items())))


def read(entries: list[bytes]) -> list[Message]:
    """What a consumer gets of the entries."""
    found: list[Message] = []
    for data in entries:
        count = admit(data).count
        found += wire.decode(Entry(0, 0, len(found), count, 0, 0, data))
    return found


def sent(batch: pa.RecordBatch, compression: str = "none", version: int | None = None) -> list[Message]:
    builder = BatchBuilder("log", "p", 3, version, COMPRESSIONS[compression])
    made = payloads(columns_of(batch, batch.column("value")))
    return read([*builder.add(made), *builder.finish()])


@given(rows=ROWS, compression=st.sampled_from(sorted(COMPRESSIONS)), cut=st.integers(0, 5))
def test_every_part_of_a_message_arrives(rows: list[dict[str, Any]], compression: str, cut: int) -> None:
    batch = frame(rows).slice(min(cut, len(rows) - 1))
    rows = rows[min(cut, len(rows) - 1) :]
    found = sent(batch, compression, 7)
    assert len(found) == len(rows)
    for index, (message, row) in enumerate(zip(found, rows, strict=True)):
        assert message.payload == (row["value"] or b"")
        assert message.null_value is (row["value"] is None)
        assert message.key == row["key"]
        assert not message.key_is_base64
        assert message.properties == dict(row["properties"] or ())
        assert message.ordering_key == row["ordering_key"]
        at = row["event_time"]
        assert message.event_time == (
            0 if at is None else int(at.timestamp()) * 1000 + at.microsecond // 1000
        )
        assert message.producer_name == "p"
        assert message.schema_version == 7
        assert message.sequence_id == (3 << 32) + index


@given(keys=st.lists(st.none() | st.binary(max_size=10), min_size=1, max_size=20))
def test_binary_keys_are_text_where_they_can_be(keys: list[bytes | None]) -> None:
    from base64 import b64decode

    found = sent(frame([{"value": b"v", "key": key} for key in keys], key=pa.binary()))
    for message, key in zip(found, keys, strict=True):
        if key is None:
            assert message.key is None
            continue
        assert message.key is not None
        got = b64decode(message.key) if message.key_is_base64 else message.key.encode()
        assert got == key
        try:
            key.decode()
            assert not message.key_is_base64
        except UnicodeDecodeError:
            assert message.key_is_base64


@given(
    rows=st.lists(st.lists(st.tuples(TEXTS, TEXTS.map(str.encode)), max_size=3), min_size=1, max_size=9),
    cut=st.integers(0, 3),
)
def test_headers_are_properties(rows: list[list[tuple[str, bytes]]], cut: int) -> None:
    given_rows = [
        {"value": b"v", "headers": [{"key": name, "value": value} for name, value in row]} for row in rows
    ]
    batch = frame(given_rows, headers=HEADERS).slice(min(cut, len(rows) - 1))
    for message, row in zip(sent(batch), rows[min(cut, len(rows) - 1) :], strict=True):
        assert message.properties == {name: value.decode() for name, value in row}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([{"key": "a", "value": None}], "without a name or a value"),
        ([{"key": "a", "value": b"\xff"}], "not UTF-8"),
    ],
)
def test_what_no_property_can_be_is_refused(headers: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        sent(frame([{"value": b"v", "headers": headers}], headers=HEADERS))


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), tag=st.none() | st.just(0x28))
def test_varints_are_those_of_the_wire(values: list[int], tag: int | None) -> None:
    got = binary.varints(tag, np.array(values, np.int64)).to_pylist()
    assert got == [(b"" if tag is None else bytes([tag])) + integer(value) for value in values]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 1000, 90_000, 300_000]), min_size=1, max_size=40),
    small=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 3040), max_size=3),
)
def test_entries_do_not_depend_on_how_rows_arrive(sizes: list[int], small: int, cuts: list[int]) -> None:
    rows = [{"value": bytes(size)} for size in sizes] + [{"value": b"x"}] * small
    whole = frame(rows)
    made = payloads(columns_of(whole, whole.column("value")))

    def entries(bounds: list[int]) -> list[tuple[int, int]]:
        builder = BatchBuilder("log", "p", 0, None, 0)
        found: list[bytes] = []
        for start, until in pairwise(bounds):
            if until > start:
                found += builder.add(made.slice(start, until - start))
        found += builder.finish()
        assert [m.payload for m in read(found)] == [row["value"] for row in rows]
        return [(admit(e).count, admit(e).sequence_id) for e in found]

    at_once = entries([0, len(rows)])
    assert at_once == entries([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)])
    assert all(count <= MESSAGES_MAX for count, _ in at_once)


def test_an_entry_is_of_a_quarter_mebibyte_unless_a_message_is_larger() -> None:
    batch = frame([{"value": bytes(100_000)}] * 5 + [{"value": bytes(BYTES_MAX + 1)}] + [{"value": b"x"}])
    made = payloads(columns_of(batch, batch.column("value")))
    builder = BatchBuilder("log", "p", 0, None, 0)
    counts = [admit(entry).count for entry in [*builder.add(made), *builder.finish()]]
    assert counts == [2, 2, 1, 1, 1]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0, 0, 1]), st.sampled_from(["a", "b", None])),
        min_size=1,
        max_size=40,
    )
)
def test_entries_never_mix_versions_and_rows_stay_in_order(rows: list[tuple[int | None, str | None]]) -> None:
    logs: dict[str, list[bytes]] = {}
    target = Target(
        TopicName.parse("t"),
        OpenedTopic(2),
        None,
        producer="p",
        batch=0,
        compression=0,
        start=0,
        put=lambda log, entry: logs.setdefault(log, []).append(entry),
    )
    made = frame([{"key": key, "value": str(n).encode()} for n, (_, key) in enumerate(rows)])
    versions = pa.array([version for version, _ in rows], pa.int64())
    target.write(columns_of(made, made.column("value")), None, None, None, versions)
    target.finish()
    found: dict[int, int | None] = {}
    for entries in logs.values():
        messages = read(entries)
        numbers = [int(message.payload) for message in messages]
        assert numbers == sorted(numbers), "in their order"
        found |= {int(message.payload): message.schema_version for message in messages}
    assert found == {n: version for n, (version, _) in enumerate(rows)}
