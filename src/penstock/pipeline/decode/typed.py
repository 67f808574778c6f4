"""Raw rows become typed ones: each message decoded by the schema that it was written with, or a column by one schema."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.schemas import one_version
from penstock.pipeline.rows.columns import VERSION
from penstock.pipeline.rows.place import Place

from .arrays import at_rows
from .decoders import decoder_for
from .payloads import PairDecoder, decode, padded
from .plan import ERROR, KEY, RAW, Plan
from .raw import Ints
from .shapes import arrow_type

RUN_ROWS: Final = 50  # of one version in a row: fewer are cheaper to take one by one

_NONE = -1


class TypedRows:
    """Decodes the rows of one log. `keep_version` says whether the version stays as a column."""

    def __init__(self, plan: Plan, place: Place, *, keep_version: bool) -> None:
        self._plan = plan
        self._place = place
        self._drop = () if keep_version else (VERSION,)
        self._value_type = plan.value_type
        self._arrow = arrow_type(self._value_type)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with its values decoded. Raises PipelineError for a broken row, unless these are retained."""
        payloads, keys = batch.column("value"), batch.column("key")
        value, wrong = self._decode(payloads, keys, batch.column(VERSION))
        if wrong and not self._plan.typed.keeps_broken:
            row = min(wrong)
            offset = batch.column("offset")[row].as_py()
            raise PipelineError(
                f"{self._place.topic}, partition {self._place.partition}, offset {offset}: {wrong[row]}"
                " (option mode=permissive keeps such rows)",
                ErrorKind.BAD_MESSAGE,
            )
        columns = {name: batch.column(name) for name in batch.schema.names if name not in self._drop}
        columns = self._flat(columns, value) if self._plan.typed.flat else columns | {"value": value}
        if self._plan.typed.keeps_broken:
            columns |= broken(payloads, wrong)
        if self._plan.typed.keep_bytes:
            columns |= {RAW: payloads, KEY: keys}
        elif self._plan.keeps_key:
            columns |= {KEY: pc.if_else(columns[ERROR].is_valid(), keys, None)}
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _flat(self, columns: dict[str, pa.Array], value: pa.StructArray) -> dict[str, pa.Array]:
        if self._plan.pair:
            key, value = value.flatten()
            columns = columns | {"key": key}
            if not pa.types.is_struct(value.type):
                return columns | {"value": value}
        others = {name: column for name, column in columns.items() if name != "value"}
        names = [field.name for field in value.type]
        return others | dict(zip(names, value.flatten(), strict=True))

    def _decode(
        self, payloads: pa.Array, keys: pa.Array, versions: pa.Array
    ) -> tuple[pa.Array, dict[int, str]]:
        numbers = versions.fill_null(_NONE).to_numpy(zero_copy_only=False)
        if not len(numbers):
            return pa.nulls(0, self._arrow), {}
        first = int(numbers[0])
        if (numbers == first).all():
            return self._group(first, payloads, keys, None)
        found: list[pa.Array] = []
        rows: list[Ints] = []
        wrong: dict[int, str] = {}
        payloads = padded(payloads)
        for version in np.unique(numbers).tolist():
            index = np.flatnonzero(numbers == version)
            column, errors = self._group(version, payloads, keys, index)
            wrong |= {int(index[row]): why for row, why in errors.items()}
            found.append(column)
            rows.append(index)
        return merge(found, rows, len(numbers)), wrong

    def _group(
        self, version: int, payloads: pa.Array, keys: pa.Array, index: Ints | None
    ) -> tuple[pa.Array, dict[int, str]]:
        """The rows of one version, which are at `index`; None: all."""
        writer, decoder, why = self._writer(version), None, "it is not registered"
        if writer is not None:
            try:
                decoder = decoder_for(writer, self._plan.reader, self._value_type)
            except PipelineError as error:
                why = error.message
        if decoder is None:
            valid = np.asarray(payloads.is_valid())
            there = np.flatnonzero(valid if index is None else valid[index]).tolist()
            rows = len(payloads) if index is None else len(index)
            return pa.nulls(rows, self._arrow), dict.fromkeys(there, f"schema version {version}: {why}")
        if not isinstance(decoder, PairDecoder):
            return decode(decoder, payloads, index)
        if index is None:
            return decoder.pairs(payloads, keys)
        some = pa.array(index)
        return decoder.pairs(payloads.take(some), keys.take(some))

    def _writer(self, version: int) -> SchemaInfo | None:
        """The schema that a version was, None if there is none."""
        place, plan = self._place, self._plan
        known = plan.schemas.get(place.topic, {})
        if version == _NONE:
            # Bytes that say nothing of themselves: a consumer takes them for what it reads.
            if plan.reader is not None:
                return plan.reader
            some = known or next(iter(plan.schemas.values()))
            return some[max(some)]
        if version in known:
            return known[version]
        plan.refuse_newer(place.topic, version)
        try:
            return one_version(plan.server, place.topic, place.ledger, version)
        except PenstockError as error:
            if error.kind is ErrorKind.SCHEMA_NOT_FOUND:
                return None
            raise


def merge(columns: Sequence[pa.Array], rows: Sequence[Ints], count: int) -> pa.Array:
    """One column of several, whose items belong at `rows`, which ascend in each."""
    order = np.empty(count, np.int64)  # where each row is in the columns, one after the other
    order[np.concatenate(rows)] = np.arange(count)
    begins = np.flatnonzero(np.diff(order, prepend=-2) != 1)
    if len(begins) * RUN_ROWS > count:
        return pa.concat_arrays(columns).take(pa.array(order))
    # A version holds for an entry's messages: its rows come in runs, which are copied as a whole.
    lengths = np.diff(begins, append=count).tolist()
    firsts = np.cumsum([0, *map(len, columns)])
    wholes = (np.searchsorted(firsts, order[begins], side="right") - 1).tolist()
    places = (order[begins] - firsts[wholes]).tolist()
    return pa.concat_arrays(
        [columns[n].slice(at, length) for n, at, length in zip(wholes, places, lengths, strict=True)]
    )


def broken(payloads: pa.Array, wrong: dict[int, str]) -> dict[str, pa.Array]:
    """The bytes and the reason of broken rows, null elsewhere."""
    rows = len(payloads)
    if not wrong:
        return {RAW: pa.nulls(rows, pa.binary()), ERROR: pa.nulls(rows, pa.string())}
    index = np.array(sorted(wrong))
    broken = np.zeros(rows, np.bool_)
    broken[index] = True
    reasons = pa.array([wrong[row] for row in index.tolist()], pa.string())
    return {RAW: at_rows(payloads.take(pa.array(index)), broken), ERROR: at_rows(reasons, broken)}
