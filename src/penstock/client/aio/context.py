"""What a client's producers and consumers share."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .lookup import Lookup, Schemas
from .tasks import Tasks

if TYPE_CHECKING:
    from .link import Link


class Context:
    """One client's connections, tasks and numbers."""

    def __init__(self, lookup: Lookup, timeout_s: float) -> None:
        self.lookup = lookup
        self.timeout_s = timeout_s
        self.tasks = Tasks()
        self.schemas = Schemas(timeout_s)
        self.numbers = itertools.count()  # of producers and consumers

    async def link(self, topic: str) -> Link:
        """A connection to the broker that serves a topic."""
        return await self.lookup.link(topic)
