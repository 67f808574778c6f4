"""Rows as JSON can hold them, for people, for programs and for comparisons: bytes as text, times as ISO 8601."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import DataFrame

BASE64: Final = "base64"


def plain_rows(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a frame, collected."""
    for batch in frame.toArrow().to_batches():
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield plain(row)


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as text or, if they are not UTF-8, as `{"base64": …}`; times in UTC."""
    match value:
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {BASE64: b64encode(value).decode()}
        case datetime():
            text = (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
            return text.replace("+00:00", "Z")
        case Decimal():
            return float(value) if Decimal(repr(float(value))) == value else str(value)
        case None | bool() | int() | float() | str():
            return value
        case date():
            return value.isoformat()
    return str(value)
