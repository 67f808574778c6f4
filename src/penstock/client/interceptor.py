"""What may watch and change a producer's messages on their way (PIP-43, part 2)."""

from __future__ import annotations

from typing import Any

from .draft import Draft
from .errors import PulsarException
from .message_id import MessageId


class ProducerInterceptor:
    """Called for each message that it finds eligible. An interceptor that fails is logged and passed over."""

    def eligible(self, message: Draft) -> bool:
        """Whether this interceptor wants to see `message`; a producer may send messages of many schemas."""
        return True

    def before_send(self, producer: Any, message: Draft) -> Draft:
        """Called before the message is encoded; returns the message to send, changed or not."""
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: Draft, message_id: MessageId | None, error: PulsarException | None
    ) -> None:
        """Called when the broker has the message, or when it failed."""

    def close(self) -> None:
        """Called when the producer is closed."""
