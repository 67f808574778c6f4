"""Interceptors around a message's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client.draft import Draft
from penstock.client.errors import PulsarException
from penstock.client.interceptor import ProducerInterceptor
from penstock.client.message_id import MessageId

from .tasks import log


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


class Watched:
    """Tells the interceptors of a message, then the message's token."""

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
