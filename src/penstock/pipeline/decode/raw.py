"""What a scan of many payloads found, as numpy arrays: one entry for each row, or for each item of all rows.

Bytes are not copied but known by where they begin and end in the payloads. `valid` is None if nothing is null.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Numbers = NDArray[Any]


class BadRows(Exception):
    """Some rows cannot be columns: `flags` marks them at the level of the caller that catches it, `why` is a reason."""

    def __init__(self, flags: Flags, why: str) -> None:
        super().__init__(why)
        self.flags = flags
        self.why = why


class Nothing(msgspec.Struct):
    """Nulls."""

    rows: int
    valid: Flags | None = None


class Scalars(msgspec.Struct):
    """Numbers, booleans, or an enum's indices."""

    values: Numbers
    valid: Flags | None = None


class Spans(msgspec.Struct):
    """Bytes of the payloads: `data[begins:ends]`."""

    begins: Ints
    ends: Ints
    valid: Flags | None = None


class Fields(msgspec.Struct):
    """A record's fields, in the order of the definition."""

    rows: int
    children: list["Raw"]
    valid: Flags | None = None


class Items(msgspec.Struct):
    """`counts[n]` items in row n; `child` are those of all rows, a row's items together and in order.

    A map's child are Fields of key and value.
    """

    counts: Ints
    child: "Raw"
    valid: Flags | None = None


class Choice(msgspec.Struct):
    """A union: `branch` is each row's, `children` are the rows of each branch, by themselves."""

    branch: Ints
    children: list["Raw"]
    valid: Flags | None = None


Raw = Nothing | Scalars | Spans | Fields | Items | Choice


def size(raw: Raw) -> int:
    """How many rows there are."""
    match raw:
        case Nothing(rows) | Fields(rows):
            return rows
        case Scalars(values):
            return len(values)
        case Spans(begins):
            return len(begins)
        case Items(counts):
            return len(counts)
        case Choice(branch):
            return len(branch)


def take(raw: Raw, index: Ints) -> Raw:
    """The rows at `index`, in its order."""
    valid = None if raw.valid is None else raw.valid[index]
    match raw:
        case Nothing():
            return Nothing(len(index), valid)
        case Scalars(values):
            return Scalars(values[index], valid)
        case Spans(begins, ends):
            return Spans(begins[index], ends[index], valid)
        case Fields(_, children):
            return Fields(len(index), [take(child, index) for child in children], valid)
        case Items(counts, child):
            return Items(counts[index], take(child, item_index(counts, index)), valid)
        case Choice(branch, children):
            place = np.zeros(len(branch), np.int64)  # each row's place among those of its branch
            taken = branch[index]
            found = []
            for number, child in enumerate(children):
                place[branch == number] = np.arange(size(child))
                found.append(take(child, place[index[taken == number]]))
            return Choice(taken, found, valid)


def item_index(counts: Ints, index: Ints) -> Ints:
    """Where the items of the rows at `index` are among the items of all rows."""
    first = np.cumsum(counts) - counts
    wanted = counts[index]
    total = int(wanted.sum())
    inside = np.arange(total) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return np.repeat(first[index], wanted) + inside


def spread(raw: Raw, index: Ints, rows: int) -> Raw:
    """`raw` at the rows `index` of `rows` in all, which ascend; null elsewhere."""
    there = np.zeros(rows, np.bool_)
    there[index] = True
    source = np.zeros(rows, np.int64)
    source[index] = np.arange(len(index))
    if isinstance(raw, Items):  # the rows between have no items
        counts = np.zeros(rows, np.int64)
        counts[index] = raw.counts
        out: Raw = Items(counts, raw.child)
    elif isinstance(raw, Choice):
        branch = np.full(rows, -1, np.int64)
        branch[index] = raw.branch
        out = Choice(branch, raw.children)
    elif isinstance(raw, Fields):
        out = Fields(rows, [spread(child, index, rows) for child in raw.children])
    elif len(index):
        out = take(raw, source)
    else:  # of the same kind, so that what is made of it, or joined with it, is
        out = Scalars(np.zeros(rows, raw.values.dtype)) if isinstance(raw, Scalars) else Spans(source, source)
        out = Nothing(rows) if isinstance(raw, Nothing) else out
    if raw.valid is not None:
        there[index] = raw.valid
    out.valid = there
    return out


def join(raws: Sequence[Raw]) -> Raw:
    """One after the other; all are scans of the same type."""
    if len(raws) == 1:
        return raws[0]
    valid = None
    if any(raw.valid is not None for raw in raws):
        valid = np.concatenate(
            [np.ones(size(raw), np.bool_) if raw.valid is None else raw.valid for raw in raws]
        )
    first = raws[0]
    match first:
        case Nothing():
            return Nothing(sum(map(size, raws)), valid)
        case Scalars():
            return Scalars(np.concatenate([raw.values for raw in raws]), valid)  # type: ignore[union-attr]
        case Spans():
            return Spans(
                np.concatenate([raw.begins for raw in raws]),  # type: ignore[union-attr]
                np.concatenate([raw.ends for raw in raws]),  # type: ignore[union-attr]
                valid,
            )
        case Items():
            return Items(
                np.concatenate([raw.counts for raw in raws]),  # type: ignore[union-attr]
                join([raw.child for raw in raws]),  # type: ignore[union-attr]
                valid,
            )
    lists: list[list[Raw]] = [raw.children for raw in raws]  # type: ignore[union-attr]
    children = [join(list(column)) for column in zip(*lists, strict=True)]
    if isinstance(first, Choice):
        return Choice(np.concatenate([raw.branch for raw in raws]), children, valid)  # type: ignore[union-attr]
    return Fields(sum(map(size, raws)), children, valid)
