"""How ranges of offsets are cut into tasks: a pure function, so that a batch that is run again is cut alike."""

from collections.abc import Sequence
from itertools import pairwise

from .offsets import Range


def split(ranges: Sequence[Range], *, rows_max: int, pieces_min: int = 1) -> list[Range]:
    """Cut into pieces of at most `rows_max` messages, and into about `pieces_min` of them at least.

    The pieces of a range are of equal size (give or take one). There are fewer than `pieces_min` only where
    there are fewer messages.
    """
    total = sum(each.size for each in ranges)
    pieces: list[Range] = []
    for each in ranges:
        wanted = max(-(-each.size // rows_max), -(-each.size * pieces_min // total))
        wanted = min(wanted, each.size)
        cuts = [each.start + each.size * n // wanted for n in range(wanted + 1)]
        pieces += [
            Range(each.topic, each.partition, each.partitioned, each.ledger, start, end)
            for start, end in pairwise(cuts)
        ]
    return pieces
