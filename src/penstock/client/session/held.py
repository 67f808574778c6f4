"""A message that may not go yet: the producer has no name, or the message's schema no version."""

from __future__ import annotations

from typing import Any

from penstock.client.schema.schema import Schema
from penstock.model.message import OutMessage


class Held:
    """`message` None: nothing but its payload. `schema` None: the producer's. `alone`: not to be batched."""

    __slots__ = ("alone", "born", "message", "payload", "schema", "token")

    def __init__(
        self,
        payload: bytes,
        message: OutMessage | None,
        token: Any,
        born: float,
        schema: Schema | None,
        alone: bool,
    ) -> None:
        self.payload = payload
        self.message = message
        self.token = token
        self.born = born
        self.schema = schema
        self.alone = alone
