"""The codecs of AVRO and JSON, whose schemas have a definition of Avro's.

AVRO is Avro's binary encoding without a header. JSON is JSON text as the payload: fields that may be null may be
missing, as Java's clients leave them out; plain values are stored as given (bytes as base64, dates as text or
number), with missing fields filled in. A JSON schema whose definition has no fields takes any value.
"""

from functools import cached_property
from math import isfinite
from typing import Any

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo

from .avro.fit import MisfitError, Walk, misfit, missing
from .avro.form import NATIVE, PLAIN, Form
from .avro.read import FAILURES as READ_FAILURES
from .avro.read import Reader, compile_reader
from .avro.resolve import mismatch
from .avro.types import Field, Type, Union
from .avro.write import FAILURES as WRITE_FAILURES
from .avro.write import Writer, compile_writer
from .codec import Codec, Part, bad_message

_ENCODE_FAILURES = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class DefinedCodec(Codec):
    """Writes by `writer`; reads what `writer` wrote as `reader` sees it."""

    def __init__(self, schema: SchemaInfo, writer: Type, reader: Type, part: Part = "value") -> None:
        super().__init__(schema, part)
        self._writer = writer
        self._reader = reader
        why = "" if reader is writer else mismatch(reader, writer)
        if why:
            raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, f"the reader's schema cannot read this: {why}")

    # Compiled when first needed: most codecs only read or only write, and in one form.
    @cached_property
    def _write_plain(self) -> Writer:
        return compile_writer(self._writer, PLAIN)

    @cached_property
    def _read_plain(self) -> Reader:
        return compile_reader(self._writer, self._reader, PLAIN)

    @cached_property
    def _read_native(self) -> Reader:
        return compile_reader(self._writer, self._reader, NATIVE)


class AvroCodec(DefinedCodec):
    """Avro's binary encoding."""

    @cached_property
    def _write_native(self) -> Writer:
        return compile_writer(self._writer, NATIVE)

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
            raise self._malformed(_reason(error)) from None
        if end != len(payload):
            raise self._malformed(f"{len(payload) - end} bytes are left over")
        return value

    def _malformed(self, why: str) -> PenstockError:
        return bad_message(f"{self.part}: the payload is not of its Avro schema: {why}")

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


class FreeJsonCodec(Codec):
    """JSON of any shape."""

    def encode(self, value: Any) -> bytes:
        return to_json(value, self.part)

    def decode(self, payload: bytes) -> Any:
        return from_json(payload, self.part)

    encode_native = encode
    decode_native = decode


class JsonCodec(DefinedCodec):
    """JSON by a definition. Avro's compiled writer is the fastest check there is, and the way to a reader's schema
    leads through Avro."""

    def __init__(self, schema: SchemaInfo, writer: Type, reader: Type, part: Part = "value") -> None:
        super().__init__(schema, writer, reader, part)
        self._defaults: dict[int, Reader] = {}

    @cached_property
    def _check_whole(self) -> Writer:
        return compile_writer(self._writer, PLAIN, whole=True)

    def encode(self, value: Any) -> bytes:
        try:
            self._check_whole(value)
        except WRITE_FAILURES:
            value = self._filled(value, PLAIN, strict=True)
        return to_json(value, self.part)

    def encode_native(self, value: Any) -> bytes:
        return to_json(self._filled(value, NATIVE, strict=True), self.part)

    def decode(self, payload: bytes) -> Any:
        value = from_json(payload, self.part)
        return value if self._reader is self._writer else self._through_avro(value, self._read_plain)

    def decode_native(self, payload: bytes) -> Any:
        return self._through_avro(from_json(payload, self.part), self._read_native)

    def check(self, payload: bytes) -> None:
        """Fields that the definition does not name pass, as readers pass over them."""
        self._filled(from_json(payload, self.part), PLAIN, strict=False)

    def as_avro(self, payload: bytes) -> bytes:
        """What the payload holds in Avro's encoding, by the writer's definition; raises BAD_MESSAGE."""
        return self._avro(from_json(payload, self.part))

    def _avro(self, value: Any) -> bytes:
        try:
            return self._write_plain(value)
        except WRITE_FAILURES:
            value = self._filled(value, PLAIN, strict=False)
            try:
                return self._write_plain(value)
            except WRITE_FAILURES as error:
                raise bad_message(f"{self.part}: does not fit its definition ({error})") from None

    def _through_avro(self, value: Any, read: Reader) -> Any:
        encoded = self._avro(value)
        try:
            return read(encoded, 0)[0]
        except READ_FAILURES as error:
            raise bad_message(f"{self.part}: cannot be read by the reader's schema: {error}") from None

    def _filled(self, value: Any, form: Form, *, strict: bool) -> Any:
        """`value` in plain form with its missing fields; raises BAD_MESSAGE with the path."""

        def kept(kind: Type, value: Any, path: str) -> Any:
            if type(value) is float and not isfinite(value):
                raise MisfitError(f"{path}: {value} cannot be written as JSON")
            if form.native:
                into, out = form.into(kind), PLAIN.out(kind)
                value = value if into is None else into(value)
                value = value if out is None else out(value)
            return value

        try:
            return Walk(form, kept, self._absent, strict=strict).value(self._writer, value, self.part)
        except MisfitError as error:
            raise bad_message(str(error)) from None
        except RecursionError:
            raise bad_message(f"{self.part}: nested too deeply") from None

    def _absent(self, field: Field, path: str) -> Any:
        if field.default is not None:
            if id(field) not in self._defaults:
                self._defaults[id(field)] = compile_reader(field.type, field.type, PLAIN)
            return self._defaults[id(field)](field.default, 0)[0]  # a new one each time: it may be a list
        if field.type.kind == "null" or (isinstance(field.type, Union) and field.type.nullable):
            return None
        raise missing(field, path)


def to_json(value: Any, part: Part) -> bytes:
    """Compact JSON text; raises BAD_MESSAGE."""
    try:
        return msgspec.json.encode(value)
    except _ENCODE_FAILURES as error:
        raise bad_message(f"{part}: cannot be written as JSON: {error}") from None


def from_json(payload: bytes, part: Part) -> Any:
    """Decode JSON text; raises BAD_MESSAGE."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_message(f"{part}: the payload is not JSON: {error}") from None
