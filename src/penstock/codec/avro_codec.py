"""The codec for Avro: plain and native values to Avro's binary encoding without a header."""

from functools import cached_property
from typing import Any

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo

from .avro.fit import misfit
from .avro.form import NATIVE, PLAIN, Form
from .avro.read import FAILURES as READ_FAILURES
from .avro.read import Reader, compile_reader
from .avro.resolve import mismatch
from .avro.types import Type
from .avro.write import FAILURES as WRITE_FAILURES
from .avro.write import Writer, compile_writer
from .codec import Codec, Part, bad_message


class AvroCodec(Codec):
    """Writes by `writer`; reads what `writer` wrote as `reader` sees it."""

    def __init__(self, schema: SchemaInfo, writer: Type, reader: Type, part: Part = "value") -> None:
        super().__init__(schema, part)
        self._writer = writer
        self._reader = reader
        if reader is not writer:
            why = mismatch(reader, writer)
            if why:
                raise PenstockError(
                    ErrorKind.INCOMPATIBLE_SCHEMA, f"the reader's schema cannot read this: {why}"
                )

    # Compiled when first needed: most codecs only read or only write, and in one form.
    @cached_property
    def _write_plain(self) -> Writer:
        return compile_writer(self._writer, PLAIN)

    @cached_property
    def _write_native(self) -> Writer:
        return compile_writer(self._writer, NATIVE)

    @cached_property
    def _read_plain(self) -> Reader:
        return compile_reader(self._writer, self._reader, PLAIN)

    @cached_property
    def _read_native(self) -> Reader:
        return compile_reader(self._writer, self._reader, NATIVE)

    def encode(self, value: Any) -> bytes:
        try:
            return self._write_plain(value)
        except WRITE_FAILURES as error:
            raise self._misfit(value, PLAIN, error) from None

    def encode_native(self, value: Any) -> bytes:
        try:
            return self._write_native(value)
        except WRITE_FAILURES as error:
            raise self._misfit(value, NATIVE, error) from None

    def decode(self, payload: bytes) -> Any:
        return self._decode(self._read_plain, payload)

    def decode_native(self, payload: bytes) -> Any:
        return self._decode(self._read_native, payload)

    def _decode(self, read: Reader, payload: bytes) -> Any:
        try:
            value, end = read(payload, 0)
        except READ_FAILURES as error:
            raise bad_message(
                f"{self.part}: the payload is not of its Avro schema: {_reason(error)}"
            ) from None
        if end != len(payload):
            raise bad_message(
                f"{self.part}: the payload is not of its Avro schema: {len(payload) - end} bytes are left over"
            )
        return value

    def _misfit(self, value: Any, form: Form, error: Exception) -> PenstockError:
        why = misfit(self._writer, value, self.part, form)
        return bad_message(why or f"{self.part}: does not fit its Avro schema ({type(error).__name__})")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "text that is no UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, ValueError) and str(error):
        return str(error)
    return "it ends too early"
