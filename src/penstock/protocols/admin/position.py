"""Positions as Pulsar's tools name them: message ids as JSON, and the n-th message of a backlog."""

from typing import Any

import msgspec

from penstock.broker.consumer import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId


class Position(msgspec.Struct, frozen=True):
    """Where a subscription is to go on: at `target`, or after it."""

    target: MessageId
    inclusive: bool
    properties: dict[str, str]

    @property
    def special(self) -> bool:
        """Whether it means a place in every partition."""
        return self.target in (EARLIEST, LATEST)


class _PositionJson(msgspec.Struct):
    """Pulsar's ResetCursorData."""

    ledgerId: int = 2**63 - 1  # noqa: N815 - Pulsar's JSON
    entryId: int = 2**63 - 1  # noqa: N815
    partitionIndex: int = -1  # noqa: N815
    batchIndex: int = -1  # noqa: N815
    excluded: bool = False  # as Pulsar's Java classes are written
    isExcluded: bool = False  # noqa: N815 - as Pulsar's field is called
    properties: dict[str, str] | None = None


def read_position(content: bytes) -> Position:
    """A body: Pulsar's object, which means *at* the message unless it says `excluded` (or `isExcluded`); or an
    id as text (base64, `earliest`, `latest`), which means *after* it as everywhere. Empty: the latest.

    Raises BAD_PARAMETER.
    """
    text = content.decode("utf-8", "replace").strip()
    if not text:
        return Position(LATEST, False, {})
    try:
        given: Any = msgspec.json.decode(text) if text[0] in '{"' else text
        if isinstance(given, str):
            return Position(MessageId.parse(given), False, {})
        found = msgspec.convert(given, _PositionJson)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"bad message id: {error}") from None
    target = MessageId(found.ledgerId, found.entryId, found.partitionIndex, max(-1, found.batchIndex))
    if target.ledger == target.entry == -1:
        target = EARLIEST
    elif target.ledger == LATEST.ledger:
        target = LATEST
    return Position(target, not (found.excluded or found.isExcluded), found.properties or {})


def offset_in_backlog(subscription: Subscription, count: int) -> int:
    """The offset of the message that `count` unacknowledged ones come before; the end where there are fewer."""
    at, left = subscription.cursor.mark, count
    for first, last in subscription.cursor.ranges():
        if first - at > left:
            break
        left -= first - at
        at = last + 1
    return min(subscription.topic.next_offset, at + left)
