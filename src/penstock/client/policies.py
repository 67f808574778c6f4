"""What some arguments of `subscribe` are made of."""

from __future__ import annotations

import msgspec

from .enums import KeySharedMode
from .errors import InvalidConfiguration


class ConsumerDeadLetterPolicy(msgspec.Struct, eq=False):
    """A message that was redelivered often enough goes to another topic.

    Args:
        max_redeliver_count: How many times a message is delivered again before that.
        dead_letter_topic: The topic; `{topic}-{subscription}-DLQ` by default.
        initial_subscription_name: A subscription to make on that topic, so that it keeps the messages.
    """

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None

    def __post_init__(self) -> None:
        if self.max_redeliver_count < 1:
            raise InvalidConfiguration("max_redeliver_count must be at least 1")


class ConsumerBatchReceivePolicy(msgspec.Struct, eq=False):
    """When `batch_receive` has enough: whichever bound is met first. A bound below 1 does not count.

    Args:
        max_num_message: How many messages.
        max_num_bytes: How many bytes of payload.
        timeout_ms: How long to wait.
    """

    max_num_message: int
    max_num_bytes: int
    timeout_ms: int

    def __post_init__(self) -> None:
        if self.max_num_message <= 0 and self.max_num_bytes <= 0 and self.timeout_ms <= 0:
            raise InvalidConfiguration("a batch receive policy needs at least one bound")


class ConsumerKeySharedPolicy:
    """How a consumer of a KeyShared subscription gets its keys.

    Args:
        key_shared_mode: Whether the broker splits the keys or the consumers name their ranges.
        allow_out_of_order_delivery: Give up the order per key for a faster start.
        sticky_ranges: With Sticky: ranges within 0 .. 65535, both ends inclusive.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        if key_shared_mode is KeySharedMode.Sticky and not sticky_ranges:
            raise ValueError("KeySharedMode.Sticky needs sticky_ranges")
        for first, last in sticky_ranges or ():
            if not 0 <= first <= last <= 65_535:
                raise ValueError(f"({first}, {last}) is no range within 0 .. 65535")
        self.key_shared_mode = key_shared_mode
        self.allow_out_of_order_delivery = allow_out_of_order_delivery
        self.sticky_ranges = list(sticky_ranges or ())
