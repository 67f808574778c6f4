"""Long work on the event loop, in slices between which the loop serves others."""

import asyncio
from time import monotonic
from typing import Final

SLICE_S: Final = 0.002  # far below what a client notices, far above what a switch costs


class Slices:
    """Asked after every step of a long piece of work: lets the loop go on once the slice of time is used up."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = monotonic() + SLICE_S

    async def step(self) -> None:
        """Go on, or let the loop serve others first."""
        if monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + SLICE_S
