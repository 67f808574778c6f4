"""When memory is given back to the system."""

import asyncio

import pytest

from penstock.protocols.load import Load
from penstock.server.resources import HANDSHAKE_BYTES, LOOKS, Trimming

MIB = 1024 * 1024


class Process:
    """A process that has what it is said to have, and looks at that."""

    def __init__(self) -> None:
        self.load = Load(1000, 1000, 256 * MIB)
        self.resident = 50 * MIB
        self.trims = 0
        self._trimming = Trimming(self.load, self._trim, lambda: self.resident)

    def _trim(self) -> None:
        self.trims += 1

    async def looks(self, times: int = 1) -> int:
        """How often `times` looks gave back."""
        before = self.trims
        for _ in range(times):
            self._trimming.look()
        await asyncio.get_running_loop().run_in_executor(self._trimming._executor, lambda: None)
        return self.trims - before


@pytest.fixture
async def process() -> Process:
    return Process()


async def test_nothing_is_given_back_while_it_is_held(process: Process) -> None:
    process.load.held = 100 * MIB
    process.resident += 110 * MIB
    assert await process.looks(100) == 0


async def test_what_goes_is_given_back_also_where_it_goes_slowly(process: Process) -> None:
    process.load.held = 100 * MIB
    process.resident += 110 * MIB
    await process.looks()
    process.load.held = 0
    assert await process.looks(2 * LOOKS[-1]) == len(LOOKS)


async def test_a_rush_between_two_looks_is_noticed(process: Process) -> None:
    """What is held is counted too late then; what the process has stays."""
    process.resident += 60 * MIB
    assert await process.looks() == 1


async def test_what_stays_is_what_the_process_has(process: Process) -> None:
    """Memory that cannot be given back is not tried for again and again."""
    process.resident += 60 * MIB
    await process.looks(2 * LOOKS[-1])
    assert await process.looks(1000) == 0
    process.resident += 60 * MIB
    assert await process.looks() == 1


async def test_handshakes_hold_memory(process: Process) -> None:
    """What TLS handshakes have is not counted as held, and goes with them all the same."""
    process.load.handshakes = 700
    process.resident += 700 * HANDSHAKE_BYTES
    assert await process.looks(100) == 0
    process.load.handshakes = 0
    assert await process.looks() == 1


async def test_a_little_more_is_no_rush(process: Process) -> None:
    process.resident += 10 * MIB
    assert await process.looks(100) == 0


async def test_a_rush_at_the_last_look_is_not_what_stays(process: Process) -> None:
    """Rushes that follow one another must not leave more each time."""
    process.resident += 60 * MIB
    await process.looks()
    process.resident -= 55 * MIB
    await process.looks(LOOKS[-1])
    process.resident += 60 * MIB  # the next one, over between two looks
    await process.looks()
    assert await process.looks() == 1


async def test_what_the_process_gives_back_later_is_not_what_it_has(process: Process) -> None:
    process.resident += 60 * MIB
    await process.looks(2 * LOOKS[-1])
    process.resident -= 60 * MIB
    await process.looks()
    process.resident += 60 * MIB
    assert await process.looks() == 1
