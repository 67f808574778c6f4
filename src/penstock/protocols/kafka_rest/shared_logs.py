"""The positions of the logs of a cluster that are in use, and their checkpoints from time to time."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Final

from penstock.broker.journal import JournalLostError, OpenJournal
from penstock.broker.topic import Topic
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks

from .blocks import Blocks
from .checkpoints import KIND
from .positions import TrimmedError
from .shared_positions import SharedPositions

log = logging.getLogger(__name__)

LOGS_MAX: Final = 256  # the least recently used is read again from its last checkpoint
KEEP_S: Final = 300.0  # clusters trim older entries
CLOSE_S: Final = 2.0


class SharedLogs:
    """The positions of each log that was asked for lately."""

    def __init__(self, open_journal: OpenJournal, tasks: Tasks, blocks: Blocks) -> None:
        self._open_journal = open_journal
        self._tasks = tasks
        self._blocks = blocks
        self._logs: OrderedDict[TopicName, SharedPositions] = OrderedDict()
        self._keeping: asyncio.Task[None] | None = None

    def of(self, topic: Topic) -> SharedPositions:
        """The positions of a log; they are new if the topic was opened again."""
        found = self._logs.pop(topic.name, None)
        if found is None or found.topic is not topic:
            open_journal = partial(self._open_journal, topic.name, KIND)
            found = SharedPositions(topic, self._blocks, open_journal)
        self._logs[topic.name] = found
        if len(self._logs) > LOGS_MAX:
            _, oldest = self._logs.popitem(last=False)
            self._tasks.spawn(self._keep([oldest]), f"keep the positions of {oldest.topic.name}")
        if self._keeping is None:
            self._keeping = self._tasks.spawn(self._keep_all(), "keep positions")
        return found

    async def _keep_all(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            await self._keep(list(self._logs.values()))

    async def _keep(self, logs: Iterable[SharedPositions]) -> None:
        for one in logs:
            try:
                await one.keep()
            except (
                PenstockError,
                TrimmedError,
                JournalLostError,
            ) as error:  # they are counted again by reading
                log.warning("positions not kept: %s", error, extra={"topic": str(one.topic.name)})

    async def close(self) -> None:
        """Store counted positions, as far as that is soon done."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._logs:
            # A started write cannot be undone: it is left running rather than cancelled.
            keeping = self._tasks.spawn(self._keep(list(self._logs.values())), "keep positions")
            await asyncio.wait((keeping,), timeout=CLOSE_S)
