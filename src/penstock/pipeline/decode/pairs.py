"""Key and value of one message: where each lies (`penstock.codec.key_value`), then both decoded apart."""

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.model.schema import KeyValueEncoding

from .leaves import span_array
from .payloads import Decoder, bounds, decode
from .raw import Flags, Ints, Numbers, Spans

_CUT: Final = "value: the payload is no key/value pair: key and value are cut short"


class PairDecoder(Decoder):
    """Reads pairs as struct<key, value>."""

    def __init__(self, key: Decoder, value: Decoder, encoding: KeyValueEncoding) -> None:
        super().__init__(pa.struct([pa.field("key", key.arrow), pa.field("value", value.arrow)]))
        self._key = key
        self._value = value
        self._separated = encoding is KeyValueEncoding.SEPARATED

    def pairs(self, payloads: pa.Array, keys: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """As `payloads.decode`, of the messages' payloads and keys."""
        wrong: dict[int, str] = {}
        valid: Flags | None = None
        if not self._separated:
            valid = np.asarray(payloads.is_valid())
            keys, payloads, broken = _split(payloads)
            wrong = dict.fromkeys(np.flatnonzero(broken & valid).tolist(), _CUT)
            valid &= ~broken
        key, wrong_keys = decode(self._key, keys)
        value, wrong_values = decode(self._value, payloads)
        wrong |= wrong_values | {row: _of_key(why) for row, why in wrong_keys.items()}
        flags = np.zeros(len(payloads), np.bool_) if valid is None else ~valid
        flags[list(wrong)] = True
        return pa.StructArray.from_arrays([key, value], fields=list(self.arrow), mask=pa.array(flags)), wrong


def _of_key(why: str) -> str:
    return "key" + why.removeprefix("value").removeprefix("key")


def _split(payloads: pa.Array) -> tuple[pa.Array, pa.Array, Flags]:
    """Keys and values of INLINE payloads, and which payloads are none: both parts after their length."""
    data, begins, ends = bounds(payloads)
    padded = np.zeros(len(data) + 4, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(data) + 1,), ">i4", padded.data, 0, (1,))
    key, broken = _part(words, begins, ends, np.zeros(len(payloads), np.bool_))
    value, broken = _part(words, key.ends, ends, broken)
    broken |= value.ends != ends
    return _array(key, padded, broken), _array(value, padded, broken), broken


def _part(words: Numbers, at: Ints, ends: Ints, broken: Flags) -> tuple[Spans, Flags]:
    length = words[np.minimum(at, len(words) - 1)].astype(np.int64)
    begins = at + 4
    broken = broken | (begins > ends) | (length < -1) | (length > ends - begins)
    null = length < 0
    length = np.where(broken | null, 0, length)
    return Spans(begins, begins + length, ~null), broken


def _array(spans: Spans, data: Numbers, broken: Flags) -> pa.Array:
    valid = ~broken if spans.valid is None else spans.valid & ~broken
    return span_array(Spans(spans.begins, spans.ends, valid), data, pa.binary())
