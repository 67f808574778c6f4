"""Where logs begin and end is asked for all at once, and the error of one is not that of the others."""

import asyncio
from collections.abc import Iterable

import pytest

from penstock.engines.kafka.driver.positions import EndLookup, Ends
from penstock.engines.kafka.driver.record import At
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

PLACES: list[At] = [("orders", number) for number in range(10)]
SLOW, GONE = PLACES[0], PLACES[1]


class _Positions:
    """The positions of logs of 5 records; counts requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.gone: set[At] = set()
        self.answering: dict[At, asyncio.Event] = {}

    async def bounds(self, places: Iterable[At]) -> dict[At, Ends]:
        self.asked += 1
        wanted = list(places)
        if self.gone & set(wanted):
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "gone")
        if len(wanted) == 1 and wanted[0] in self.answering:
            await self.answering[wanted[0]].wait()
        return dict.fromkeys(wanted, (0, 5))


async def test_what_is_asked_together_is_one_request() -> None:
    positions = _Positions()
    lookup = EndLookup(positions, Tasks())
    assert await asyncio.gather(*map(lookup.ends, PLACES)) == [(0, 5)] * len(PLACES)
    assert positions.asked == 1


async def test_no_log_waits_for_one_that_fails_or_is_not_answered() -> None:
    positions = _Positions()
    positions.gone = {GONE}
    answer = positions.answering[SLOW] = asyncio.Event()
    lookup = EndLookup(positions, Tasks())
    slow, failed, *others = [asyncio.ensure_future(lookup.ends(one)) for one in PLACES]  # noqa: TID251
    async with asyncio.timeout(60):
        assert await asyncio.gather(*others) == [(0, 5)] * len(others)
        with pytest.raises(PenstockError):
            await failed
        assert not slow.done()
        answer.set()
        assert await slow == (0, 5)
