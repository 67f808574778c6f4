"""What a file's footer says of its columns, as Delta's statistics and as bounds that reading prunes by. Pure."""

import json
import math
from datetime import date, datetime
from typing import Any, Final

import pyarrow.parquet as pq

from .values import Cell

COLUMNS_MAX: Final = 32  # as Delta counts
TEXT_MAX: Final = 64  # a longer bound says nothing
BOUNDS: Final = ("topic", "partition", "offset")  # what ranges of an archive are found by


def summary(footer: pq.FileMetaData) -> tuple[str, dict[str, Cell], dict[str, Cell]]:
    """Delta's JSON, and the lowest and highest of BOUNDS."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    counted = 0
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name or counted == COLUMNS_MAX:
            continue
        counted += 1
        found = [footer.row_group(g).column(number).statistics for g in range(footer.num_row_groups)]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        if all(each.has_min_max or each.num_values == 0 for each in found):
            bounds = [(each.min, each.max) for each in found if each.has_min_max]
            if bounds:
                low[name] = min(bound[0] for bound in bounds)
                high[name] = max(bound[1] for bound in bounds)
    stats = {
        "numRecords": footer.num_rows,
        "minValues": _plain(low, up=False),
        "maxValues": _plain(high, up=True),
        "nullCount": nulls,
    }
    return (
        json.dumps(stats),
        {n: low[n] for n in BOUNDS if isinstance(low.get(n), str | int)},
        {n: high[n] for n in BOUNDS if isinstance(high.get(n), str | int)},
    )


def _plain(bounds: dict[str, Any], *, up: bool) -> dict[str, Any]:
    found = {name: _bound(value, up=up) for name, value in bounds.items()}
    return {name: value for name, value in found.items() if value is not None}


def _bound(value: Any, *, up: bool) -> Any:
    """A bound in Delta's JSON; None where it has none. Times have ms: a lower bound goes down, an upper one up."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= TEXT_MAX else None
        case datetime():
            ms, rest = divmod(value.microsecond, 1000)
            text = value.replace(microsecond=0, tzinfo=None).isoformat()
            if up and rest:
                ms += 1
            if ms == 1000:
                return None
            return f"{text}.{ms:03d}" + ("Z" if value.tzinfo else "")
        case date():
            return value.isoformat()
    return None
