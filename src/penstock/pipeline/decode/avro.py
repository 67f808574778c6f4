"""Avro payloads; JSON ones by way of Avro, for their definitions are the same."""

import numpy as np
import pyarrow as pa

from penstock.codec import Codec
from penstock.codec.avro.types import Type
from penstock.codec.defined import JsonCodec, from_json
from penstock.model.errors import PenstockError

from .build import compile_build
from .leaves import text
from .payloads import Decoder, bounds
from .raw import BadRows, Flags, Ints
from .scan import compile_scan, scan
from .shapes import arrow_type, spark_type


class AvroDecoder(Decoder):
    """Reads what was written by the definition `writer` as the definition `reader` sees it."""

    def __init__(self, codec: Codec, writer: Type, reader: Type) -> None:
        super().__init__(arrow_type(spark_type(reader)))
        spark_type(writer)  # refuses a type that contains itself
        self.codec = codec
        self._scan = compile_scan(writer)
        self._build = compile_build(writer, reader)

    def column(self, payloads: pa.Array) -> pa.Array:
        return self.scanned(*bounds(payloads))

    def chosen(self, payloads: pa.Array, index: Ints) -> pa.Array:
        data, begins, ends = bounds(payloads)
        return self.scanned(data, begins[index], ends[index])

    def scanned(self, data: memoryview | bytes, begins: Ints, ends: Ints) -> pa.Array:
        """The column of Avro values that lie at `data[begins:ends]`; raises BadRows."""
        raw, bad, padded = scan(self._scan, data, begins, ends)
        if bad.any():
            raise BadRows(bad, "the payload is not of its schema")
        return self._build(raw, padded)

    def reason(self, payload: bytes) -> str:
        try:
            self.codec.decode_native(payload)
        except PenstockError as error:
            return error.message
        return ""


class JsonDecoder(AvroDecoder):
    """Reads JSON by a definition."""

    chosen = Decoder.chosen

    def __init__(self, codec: JsonCodec, writer: Type, reader: Type) -> None:
        super().__init__(codec, writer, reader)
        self._as_avro = codec.as_avro

    def column(self, payloads: pa.Array) -> pa.Array:
        bad: Flags = np.zeros(len(payloads), np.bool_)
        found: list[bytes] = []
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                found.append(self._as_avro(payload))
            except PenstockError:
                bad[row] = True
        if bad.any():
            raise BadRows(bad, "the payload is not of its schema")
        ends = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(found) else ends
        return self.scanned(b"".join(found), begins, ends)


class FreeJsonDecoder(Decoder):
    """JSON without a definition: its text, once it is known to be JSON."""

    def __init__(self) -> None:
        super().__init__(pa.string())

    def column(self, payloads: pa.Array) -> pa.Array:
        bad = np.fromiter((bool(self.reason(item)) for item in payloads.to_pylist()), np.bool_, len(payloads))
        if bad.any():
            raise BadRows(bad, "the payload is not JSON")
        return text(payloads)

    def reason(self, payload: bytes) -> str:
        try:
            from_json(payload, "value")
        except PenstockError as error:
            return error.message
        return ""
