"""What may watch and change a producer's messages on their way (PIP-43, part 2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .draft import Draft
from .errors import PulsarException
from .message_id import MessageId

log = logging.getLogger("penstock.client")


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


class Interceptors:
    """A producer's. Each sees the messages that it finds eligible; one that fails is passed over."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._all = list(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def before_send(self, producer: Any, made: Draft) -> Draft:
        """What becomes of a message before it is encoded."""
        for interceptor in self._all:
            try:
                if interceptor.eligible(made):
                    made = interceptor.before_send(producer, made)
            except Exception:
                log.exception("an interceptor failed before a message was sent")
        return made

    def acknowledged(
        self, producer: Any, made: Draft, message_id: MessageId | None, error: PulsarException | None
    ) -> None:
        """What became of a message."""
        for interceptor in self._all:
            try:
                if interceptor.eligible(made):
                    interceptor.on_send_acknowledgement(producer, made, message_id, error)
            except Exception:
                log.exception("an interceptor failed after a message was sent")

    def close(self) -> None:
        """The producer is closed."""
        for interceptor in self._all:
            try:
                interceptor.close()
            except Exception:
                log.exception("an interceptor could not be closed")


class Intercepted:
    """A token that calls the interceptors, then the message's own token."""

    def __init__(self, interceptors: Interceptors, producer: Any, made: Draft, token: Any) -> None:
        self._interceptors = interceptors
        self._producer = producer
        self._made = made
        self._token = self.inner = token
        self.is_request = getattr(token, "is_request", False)

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        self._interceptors.acknowledged(self._producer, self._made, message_id, error)
        if self._token is not None:
            self._token(error, message_id)

    def replied(self, result: Any) -> None:
        """A request's reply came."""
        self._token.replied(result)
