"""What a record costs to encode and to decode, next to fastavro doing the same without checking the values.

    python benchmarks/codec.py [--seconds 0.5]

Records have ten fields: four texts, five numbers and a boolean, as a flight has. `nullable` is the same with
every field a union of null and its type, as Pulsar's clients generate them. `values` also has bytes, a
timestamp and a decimal, in plain form and in native form. Times are the best of several runs, in µs a record.
"""

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import msgspec

from penstock.codec import Codec, codec_for
from penstock.model.schema import SchemaInfo, SchemaType

FLIGHT = {
    "carrier": "UA",
    "flight": 1545,
    "origin": "EWR",
    "dest": "IAH",
    "tail": "N14228",
    "time": 1_357_034_400_000,
    "delay": 2.5,
    "distance": 1400.0,
    "hour": 5,
    "on_time": True,
}
TYPES = {str: "string", float: "double", bool: "boolean"}
INTS = {"time": "long"}
MORE_TYPES = {
    "raw": "bytes",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
}
MORE = {"raw": "AP8Q", "at": "2013-01-01T10:00:00.000Z", "price": "120.50"}


def definition(*, nullable: bool = False, more: bool = False) -> dict[str, Any]:
    """The record's definition."""
    fields: dict[str, Any] = {
        name: TYPES.get(type(value)) or INTS.get(name, "int") for name, value in FLIGHT.items()
    }
    if more:
        fields |= MORE_TYPES
    return {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": name, "type": ["null", kind] if nullable else kind} for name, kind in fields.items()
        ],
    }


def micros(call: Callable[[Any], Any], argument: Any, seconds: float) -> float:
    """The time of one call: the best of runs that last `seconds` together."""
    best, end, count = float("inf"), time.perf_counter() + seconds, 1000
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            call(argument)
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e6


def show(name: str, encode: float, decode: float) -> None:
    print(f"{name:<34}{encode:8.2f}{decode:10.2f}")


def floor(name: str, schema: dict[str, Any], seconds: float) -> None:
    """fastavro's compiled writer and reader, as they are."""
    parsed = fastavro.parse_schema(schema)

    def encode(value: Any) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        return buffer.getvalue()

    def decode(payload: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

    show(name, micros(encode, FLIGHT, seconds), micros(decode, encode(FLIGHT), seconds))


def codec_of(kind: SchemaType, schema: dict[str, Any]) -> Codec:
    return codec_for(SchemaInfo(kind, json.dumps(schema).encode()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    seconds = parser.parse_args().seconds
    plain, nullable, values = definition(), definition(nullable=True), definition(more=True)

    print(f"{'µs a record':<34}{'encode':>8}{'decode':>10}")
    floor("floor: fastavro", plain, seconds)
    floor("floor: fastavro, nullable", nullable, seconds)
    show("floor: msgspec, JSON text", micros(msgspec.json.encode, FLIGHT, seconds),
         micros(msgspec.json.decode, msgspec.json.encode(FLIGHT), seconds))  # fmt: skip
    for name, kind, schema, value in [
        ("avro", SchemaType.AVRO, plain, FLIGHT),
        ("avro, nullable", SchemaType.AVRO, nullable, FLIGHT),
        ("avro, values", SchemaType.AVRO, values, FLIGHT | MORE),
        ("json", SchemaType.JSON, plain, FLIGHT),
        ("json, nullable", SchemaType.JSON, nullable, FLIGHT),
        ("json, values", SchemaType.JSON, values, FLIGHT | MORE),
    ]:
        codec = codec_of(kind, schema)
        payload = codec.encode(value)
        show(name, micros(codec.encode, value, seconds), micros(codec.decode, payload, seconds))
        if "values" in name:
            native = codec.decode_native(payload)
            show(f"{name}, native", micros(codec.encode_native, native, seconds),
                 micros(codec.decode_native, payload, seconds))  # fmt: skip
    sparse = {name: value for name, value in FLIGHT.items() if name != "tail"}
    show(
        "json, nullable, one missing", micros(codec_of(SchemaType.JSON, nullable).encode, sparse, seconds), 0
    )
    text = codec_for(SchemaInfo(SchemaType.STRING))
    show("string", micros(text.encode, "x" * 100, seconds), micros(text.decode, b"x" * 100, seconds))

    seen = definition(nullable=True)
    seen["fields"].append({"name": "new", "type": ["null", "string"], "default": None})
    reader = SchemaInfo(SchemaType.AVRO, json.dumps(seen).encode())
    resolving = codec_for(SchemaInfo(SchemaType.AVRO, json.dumps(plain).encode()), reader)
    show("avro, read by another schema", 0, micros(resolving.decode, resolving.encode(FLIGHT), seconds))

    def compile_both(number: int) -> None:
        schema = SchemaInfo(SchemaType.AVRO, json.dumps({**plain, "doc": f"{time.perf_counter()}"}).encode())
        codec = codec_for(schema)
        codec.decode(codec.encode(FLIGHT))

    show("avro, first use of a schema", micros(compile_both, 0, seconds), 0)


if __name__ == "__main__":
    main()
