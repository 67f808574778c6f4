"""Where logs begin and end: what is asked for many logs at once is one request."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks, each

from .record import At

ALONE_AT_ONCE: Final = 16

Ends = tuple[int, int]  # the first offset, and the one after the last


class Positions(Protocol):
    """What an administrator knows of partitions; of the driver's `KafkaAdmin`."""

    async def bounds(self, places: Iterable[At]) -> dict[At, Ends]: ...


class EndLookup:
    """Asks for all that was wanted since the last request, one request after the other."""

    def __init__(self, positions: Positions, tasks: Tasks) -> None:
        self._positions = positions
        self._tasks = tasks
        self._wanted: dict[At, asyncio.Future[Ends]] = {}
        self._asking = False

    async def ends(self, place: At) -> Ends:
        """Where one log begins and ends now. Raises TOPIC_NOT_FOUND, UNAVAILABLE."""
        future = self._wanted.get(place)
        if future is None:
            future = self._wanted[place] = asyncio.get_running_loop().create_future()
            if not self._asking:
                self._asking = True
                self._tasks.spawn(self._ask(), "ask where logs end")
        return await asyncio.shield(future)

    async def _ask(self) -> None:
        try:
            while self._wanted:
                await asyncio.sleep(0)  # who asks in the same turn of the loop joins
                wanted, self._wanted = self._wanted, {}
                await self._answer(wanted)
        finally:
            self._asking = False

    async def _answer(self, wanted: dict[At, asyncio.Future[Ends]]) -> None:
        try:
            found = await self._positions.bounds(wanted)
        except PenstockError as error:
            if len(wanted) > 1 and error.kind is not ErrorKind.UNAVAILABLE:
                # It is the error of one of them: each is asked for alone, so that no other waits for it.
                await each(lambda one: self._answer(dict((one,))), list(wanted.items()), ALONE_AT_ONCE)
                return
            for future in wanted.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # nobody may wait any more
        else:
            for place, future in wanted.items():
                if not future.done():
                    future.set_result(found[place])
