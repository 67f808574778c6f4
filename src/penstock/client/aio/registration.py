"""Registering the schemas that a producer's messages bring along (PIP-43)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.client.errors import PulsarException
from penstock.client.schema.schema import Schema
from penstock.client.session.outbox import Outbox

from .context import Context
from .link import Link

AGAIN_S: Final = 0.1  # before a broker that could not answer is asked again


class Registration:
    """Asks for the version of the schema that an outbox wants, one at a time; `done` is called after each."""

    def __init__(self, context: Context, topic: str, outbox: Outbox, done: Callable[[], None]) -> None:
        self._context = context
        self._topic = topic
        self._outbox = outbox
        self._done = done
        self._asking = False

    def ask(self, link: Link | None) -> None:
        """Ask, where a version is wanted and there is a connection."""
        schema = self._outbox.wanted
        if schema is not None and link is not None and not self._asking:
            self._asking = True
            self._context.tasks.spawn(self._ask(link, schema), f"register a schema of {self._topic}")

    async def _ask(self, link: Link, schema: Schema) -> None:
        try:
            version = await self._context.schemas.register(link, self._topic, schema.schema_info())
            self._outbox.registered(schema, version)
        except PulsarException as error:
            if error.can_retry:
                await asyncio.sleep(AGAIN_S)
            else:
                self._outbox.unregistered(schema, error)
        finally:
            self._asking = False
        self._done()
