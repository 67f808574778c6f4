"""What `Cursors` uses, whom it tells, and how its saves are answered."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.engines.kafka.driver.record import Header
from penstock.model.errors import ErrorKind, PenstockError

from .records import Claim, CursorRecord


class Replaced(PenstockError):
    """Another process owns the slot, or nobody yet: nothing was saved."""


class JournalPort(Protocol):
    """What is used of the driver's `Journal`."""

    topic: str
    begin: int
    position: int

    async def start(self) -> None: ...
    async def append(self, key: bytes, value: bytes, headers: Sequence[Header] = ()) -> int: ...
    async def trim(self, offset: int) -> None: ...
    async def close(self) -> None: ...


class CursorsListener(Protocol):
    """Called on the loop."""

    def replaced(self, slots: Sequence[int]) -> None:
        """Others own these slots now; if the group still assigns them to this process, it claims them again."""

    def refused(self, error: PenstockError) -> None:
        """This process cannot own slots at all."""


class Waiting(msgspec.Struct, eq=False):
    """A save that is not answered."""

    changes: Sequence[CursorRecord]
    holdings: dict[int, int]  # the slots, and which time of owning them it belongs to
    size: int
    future: "asyncio.Future[None]"

    def end(self, error: PenstockError | None) -> None:
        if self.future.done():  # the caller no longer waits
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(type(error)(error.kind, error.message))


def replaced(slot: int) -> Replaced:
    """The error of a save for a slot that this process does not own."""
    return Replaced(ErrorKind.UNAVAILABLE, f"another process owns slot {slot}")


def foreign(claim: Claim, topic: str, group: str, slots: int) -> PenstockError | None:
    """Why a claim in a topic is not one of the service with this group and number of slots."""
    if claim.slots != slots:
        what = f"the cursors in {topic} are those of {claim.slots} slots, not of {slots}"
    elif claim.group != group:
        what = f"group {claim.group} claims slots in {topic}, which is {group}'s"
    else:
        return None
    return PenstockError(ErrorKind.BAD_PARAMETER, what)
