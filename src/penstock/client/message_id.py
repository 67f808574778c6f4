"""Message ids as users hold them."""

from __future__ import annotations

from functools import total_ordering
from typing import ClassVar

from penstock.model import message_id as model

_EARLIEST, _LATEST = model.EARLIEST, model.LATEST


@total_ordering
class MessageId:
    """The position of a message.

    Attributes:
        earliest: The position before the first message that a topic holds.
        latest: The position after the last one.
    """

    __slots__ = ("_batch_index", "_batch_size", "_chunks", "_entry", "_ledger", "_partition", "_topic")

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        topic: str = "",
        chunks: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._ledger = ledger_id
        self._entry = entry_id
        self._partition = partition
        self._batch_index = batch_index
        self._batch_size = batch_size
        self._topic = topic
        self._chunks = chunks

    def ledger_id(self) -> int:
        """The ledger that holds the message."""
        return self._ledger

    def entry_id(self) -> int:
        """The entry within the ledger."""
        return self._entry

    def batch_index(self) -> int:
        """The place within the entry's batch, -1 when the message was sent alone."""
        return self._batch_index

    def batch_size(self) -> int:
        """The number of messages in the entry, 0 if it is not known."""
        return self._batch_size

    def partition(self) -> int:
        """The partition of the topic, -1 when it has none."""
        return self._partition

    def topic_name(self) -> str:
        """The topic (the partition) that the message came from, "" if it is not known."""
        return self._topic

    def serialize(self) -> bytes:
        """Bytes to keep; `deserialize` reads them."""
        return self._plain().to_bytes()

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Read what `serialize` wrote.

        Args:
            message_id_bytes: The bytes.
            topic: The topic of the message, which a consumer of several topics needs to know.

        Raises:
            ValueError: The bytes are not a message id.
        """
        return MessageId._of(model.MessageId.from_bytes(message_id_bytes), topic or "")

    @staticmethod
    def _of(plain: model.MessageId, topic: str = "") -> MessageId:
        return MessageId(
            plain.partition, plain.ledger, plain.entry, plain.batch_index, plain.batch_size, topic
        )

    def _plain(self) -> model.MessageId:
        return model.MessageId(
            self._ledger, self._entry, self._partition, self._batch_index, self._batch_size
        )

    def _order(self) -> tuple[int, int, int, int]:
        return self._ledger, self._entry, self._batch_index, self._partition

    def __eq__(self, other: object) -> bool:
        return self._order() == other._order() if isinstance(other, MessageId) else NotImplemented

    def __lt__(self, other: MessageId) -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def __str__(self) -> str:
        return f"({self._ledger},{self._entry},{self._partition},{self._batch_index})"

    def __repr__(self) -> str:
        return f"MessageId{self}"


MessageId.earliest = MessageId._of(_EARLIEST)
MessageId.latest = MessageId._of(_LATEST)
