"""What a cluster says of a subscription's cursor."""

from collections.abc import Iterator

from penstock.model.message_id import MessageId


class ClusterCursor:
    """`broker.Cursor`, as it was learned last. Positions are those of the log."""

    def __init__(self) -> None:
        self.mark = 0
        self.beyond = 0
        self._ranges: list[tuple[int, int]] = []

    def learn(self, mark: int, ranges: list[tuple[int, int]]) -> None:
        self.mark = mark
        self._ranges = ranges
        self.beyond = sum(last - first + 1 for first, last in ranges)

    def mask(self, offset: int, count: int) -> int:
        """Which of `count` messages from `offset` on are acknowledged, as bits."""
        mask = 0
        for first, last in [(0, self.mark - 1), *self._ranges]:
            low, high = max(first, offset), min(last, offset + count - 1)
            if low <= high:
                mask |= (1 << high - offset + 1) - (1 << low - offset)
        return mask

    def ranges(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)


def place_of(text: str) -> MessageId:
    ledger, _, entry = text.partition(":")
    return MessageId(int(ledger), int(entry))


def read_ranges(text: str) -> list[tuple[MessageId, MessageId]]:
    """The cluster's `[(3:0..3:2],(3:4..3:5]]`: after the first id of each, up to and with the second."""
    found: list[tuple[MessageId, MessageId]] = []
    for part in text.strip("[]").replace("],(", "|").strip("(]").split("|"):
        first, dots, last = part.partition("..")
        if dots:
            found.append((place_of(first), place_of(last)))
    return found
