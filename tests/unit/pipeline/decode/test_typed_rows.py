"""Batches decoded by a plan: versions mixed row by row, broken rows, what is newer than the plan."""

import json
import pickle
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from penstock.client.access import Access
from penstock.codec import codec_for, key_value_schema
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType
from penstock.pipeline.decode import typed as module
from penstock.pipeline.decode.decoders import column_type
from penstock.pipeline.decode.options import Typed
from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.decode.typed import TypedRows
from penstock.pipeline.errors import PipelineError, SchemaChanged
from penstock.pipeline.rows.place import Place

TOPIC = "persistent://public/default/t"
PLACE = Place(TOPIC, 3, 1)


def avro(*fields: dict[str, Any]) -> SchemaInfo:
    return SchemaInfo(
        SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": list(fields)}).encode()
    )


V0 = avro({"name": "id", "type": "int"})
V1 = avro({"name": "id", "type": "long"}, {"name": "to", "type": "string", "default": "?"})
V2 = avro({"name": "id", "type": "string"})
CODECS = [codec_for(schema) for schema in (V0, V1, V2)]


def plan(
    mode: str = "permissive", on_new: str = "ignore", *, flat: bool = False, keep_bytes: bool = False
) -> Plan:
    made = Plan(
        typed=Typed(flat=flat, mode=mode, on_new=on_new, keep_bytes=keep_bytes),
        server=Access(url="http://127.0.0.1:9"),
        topic=TOPIC,
        version=1,
        reader=V1,
        wanted=column_type(V1).json(),
        schemas={TOPIC: {0: V0, 1: V1}},
    )
    again: Plan = pickle.loads(pickle.dumps(made))
    assert again == made
    return again


def batch(*rows: tuple[int | None, bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * len(rows), pa.binary()),
            pa.array([payload for _, payload in rows], pa.binary()),
            pa.array(np.arange(100, 100 + len(rows))),
            pa.array([version for version, _ in rows], pa.int64()),
        ],
        ["key", "value", "offset", "schema_version"],
    )


def encoded(version: int | None, number: int) -> bytes:
    if version in (None, 1):
        return CODECS[1].encode({"id": number, "to": "x"})
    return CODECS[version].encode({"id": number if version == 0 else str(number)})


@given(
    st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from(["good", "cut", "null"])), max_size=40)
)
def test_rows_stay_in_their_order(rows: list[tuple[int | None, str]]) -> None:
    made = [
        (version, None if what == "null" else encoded(version, n)[: -1 if what == "cut" else None])
        for n, (version, what) in enumerate(rows)
    ]
    found = TypedRows(plan(), PLACE, keep_version=False).apply(batch(*made))
    found.validate(full=True)
    assert found.schema.names == ["key", "value", "offset", "_raw", "_error"]
    for n, ((version, what), row) in enumerate(zip(rows, found.to_pylist(), strict=True)):
        assert row["offset"] == 100 + n
        if what == "good":
            assert row["value"] == {"id": n, "to": "?" if version == 0 else "x"}
        else:
            assert row["value"] is None
        assert (row["_error"] is not None) == (what == "cut")
        assert row["_raw"] == (made[n][1] if what == "cut" else None)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("mode", ["failfast", "permissive"])
def test_messages_are_kept_beside_what_they_were_decoded_to(mode: str, flat: bool) -> None:
    made = plan(mode, flat=flat, keep_bytes=True)
    rows = [(0, encoded(0, 7)), (None, None), (1, encoded(1, 8))]
    found = TypedRows(made, PLACE, keep_version=True).apply(batch(*rows, keys=[b"\xff", None, b"k"]))
    assert found.column("_raw").to_pylist() == [payload for _, payload in rows]
    assert found.column("_key").to_pylist() == [b"\xff", None, b"k"]
    plain = StructType().add("key", "binary").add("value", "binary").add("offset", "long")
    wanted = made.columns(plain.add("schema_version", "long")).fieldNames()
    assert found.schema.names == wanted, "as the plan promises"


def test_long_runs_of_a_version_stay_in_their_order() -> None:
    versions = [0] * 120 + [1] * 250 + [0] * 3 + [1] * 90 + [None] * 40
    rows = batch(*[(version, encoded(version, n)) for n, version in enumerate(versions)]).slice(7)
    found = TypedRows(plan(), PLACE, keep_version=False).apply(rows)
    found.validate(full=True)
    assert [row["value"]["id"] for row in found.to_pylist()] == list(range(7, len(versions)))


def test_failfast_names_the_first_broken_row() -> None:
    rows = batch((0, encoded(0, 1)), (1, b"\1"), (0, b""))
    with pytest.raises(
        PipelineError, match=r"default/t, partition 3, offset 101: value: the payload"
    ) as error:
        TypedRows(plan("failfast"), PLACE, keep_version=False).apply(rows)
    assert error.value.kind is ErrorKind.BAD_MESSAGE


def test_versions_that_the_plan_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(access: Access, topic: str, ledger: int, version: int) -> SchemaInfo:
        assert (topic, ledger) == (TOPIC, 1)
        if version == 2:
            return V2
        raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema not found")

    monkeypatch.setattr(module, "one_version", fetched)
    rows = batch((0, encoded(0, 1)), (2, encoded(2, 2)), (9, b"\2"), (2, None))
    found = TypedRows(plan(), PLACE, keep_version=True).apply(rows).to_pylist()
    assert [row["value"] and row["value"]["id"] for row in found] == [1, None, None, None]
    assert [row["_error"] for row in found] == [
        None,
        "schema version 2: the reader's schema cannot read this: field 'id': string was written, which long cannot"
        " read",
        "schema version 9: it is not registered",
        None,
    ]
    with pytest.raises(SchemaChanged, match=r"\[PENSTOCK_SCHEMA_CHANGED\] .*has schema version 2"):
        TypedRows(plan(on_new="restart"), PLACE, keep_version=False).apply(rows)
    with pytest.raises(PipelineError, match=r"planned with 1 .option onNewSchema=fail"):
        TypedRows(plan(on_new="fail"), PLACE, keep_version=False).apply(rows)


def test_an_empty_batch_and_flat_columns() -> None:
    found = TypedRows(plan(flat=True), PLACE, keep_version=False).apply(batch())
    assert found.schema.names == ["key", "offset", "id", "to", "_raw", "_error"]
    rows = batch((1, encoded(1, 5)), (1, b""))
    assert TypedRows(plan(flat=True), PLACE, keep_version=False).apply(rows).column("id").to_pylist() == [
        5,
        None,
    ]


@pytest.mark.parametrize("encoding", list(KeyValueEncoding))
def test_pairs(encoding: KeyValueEncoding) -> None:
    schema = key_value_schema(SchemaInfo(SchemaType.INT32), V0, encoding)
    inline = encoding is KeyValueEncoding.INLINE
    value = encoded(0, 4)
    key = (7).to_bytes(4, "big")

    def payload(key: bytes | None, value: bytes | None) -> bytes:
        return b"".join(
            (-1 if part is None else len(part)).to_bytes(4, "big", signed=True) + (part or b"")
            for part in (key, value)
        )

    pairs = [(key, value), (None, value), (key, None), (b"\1", value), (key, b"\1\1\1")]
    if inline:
        rows = batch(*((0, payload(*pair)) for pair in pairs), (0, payload(key, value)[:-1]), (0, None))
    else:
        rows = batch(*((0, v) for _, v in pairs), keys=[k for k, _ in pairs])
    made = Plan(
        typed=Typed(flat=False, mode="permissive"),
        server=Access(url="http://127.0.0.1:9"),
        topic=TOPIC,
        version=0,
        reader=schema,
        wanted=column_type(schema).json(),
        schemas={TOPIC: {0: schema}},
    )
    found = TypedRows(made, PLACE, keep_version=False).apply(rows)
    found.validate(full=True)
    got = found.to_pylist()
    assert [row["value"] for row in got[:5]] == [
        {"key": 7, "value": {"id": 4}},
        {"key": None, "value": {"id": 4}},
        {"key": 7, "value": None},
        None,
        None,
    ]
    errors = [row["_error"] for row in got]
    assert errors[:3] == [None] * 3
    assert errors[3] == "key: a payload of 1 bytes is no int32"
    assert errors[4].startswith("value: the payload is not of its Avro schema")
    if inline:
        assert errors[5] == "value: the payload is no key/value pair: key and value are cut short"
        assert (got[6]["value"], errors[6]) == (None, None)
    flat = msgspec.structs.replace(made, typed=Typed(flat=True, mode="dead_letter"))
    found = TypedRows(flat, PLACE, keep_version=False).apply(rows)
    found.validate(full=True)
    assert found.schema.names == ["key", "offset", "id", "_raw", "_error", "_key"]
    got = found.to_pylist()
    assert [row["key"] for row in got[:4]] == [7, None, 7, None]
    broken = [row["_error"] is not None for row in got]
    came = rows.column("key").to_pylist()
    assert [row["_key"] for row in got] == [k if bad else None for k, bad in zip(came, broken, strict=True)]


def test_an_error_that_travels_keeps_its_mark() -> None:
    assert str(pickle.loads(pickle.dumps(SchemaChanged("x")))) == "[PENSTOCK_SCHEMA_CHANGED] x"
