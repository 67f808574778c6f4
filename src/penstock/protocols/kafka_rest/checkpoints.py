"""Checkpoints of positions in a journal that all processes before a cluster share.

A record says how many records had counted when it was written, and counts itself only if none did since. So whatever
order the records of several processes come in, all readers find the same ones, and one process alone
decides what cannot be computed from the log: the first position, and the position behind messages that were
trimmed before anyone had read them.

A record names its version. A process that reads one of an unknown version cannot know which records count after it: it
returns no positions of the log any more.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.broker.journal import Journal
from penstock.model.errors import PenstockError
from penstock.model.formats import POSITIONS

log = logging.getLogger(__name__)

KIND: Final = "positions"


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """An entry that identifies a log: a recreated log of the same name has another entry in its place."""

    ledger: int
    entry_id: int
    publish_time: int


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Points of a log that follow those of the records before. `number`: how many records counted before.

    `steps`: they do not follow by the bytes between. `anew`: the log is another one, and earlier checkpoints are void.
    """

    number: int
    points: list[tuple[int, int]]  # offset and position, rising
    last: Seen | None = None  # the entry that ends at the last point, if it was read
    steps: bool = False
    anew: bool = False
    version: int = 0  # 0: not named


class _Versioned(msgspec.Struct):
    """The fields that every version of a record has."""

    version: int | str | None = None


class Checkpoints:
    """The checkpoints of one log, as far as this process has read them."""

    def __init__(self, journal: Journal, log: str = "") -> None:
        self.number = 0  # how many counted
        self._journal = journal
        self._log = log  # the log's name
        self._newer: PenstockError | None = None  # set after a record of an unknown version
        self._versions = msgspec.json.Decoder(_Versioned)
        self._decoder = msgspec.json.Decoder(Checkpoint)

    async def read_on(self) -> Sequence[Checkpoint]:
        """The valid checkpoints since the last call. Raises as `Journal.read_on`, and NEWER_FORMAT from the first record of
        an unknown version on."""
        if self._newer is not None:
            raise PenstockError(self._newer.kind, self._newer.message)
        found: list[Checkpoint] = []
        for record in await self._journal.read_on():
            try:
                self._check(self._versions.decode(record).version)
                one = self._decoder.decode(record)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                log.warning("a record of a journal of positions cannot be understood, and does not count")
                continue
            if one.number == self.number and _is_sound(one):
                self.number += 1
                found.append(one)
        return found

    def _check(self, version: int | str | None) -> None:
        try:
            POSITIONS.check(version, self._log)
        except PenstockError as error:
            log.error("positions cannot be given", extra={"log": self._log, "reason": error.message})
            self._newer = error
            raise

    async def propose(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint durably. `read_on` says whether it counts. Raises as `Journal.append`."""
        named = msgspec.structs.replace(checkpoint, version=POSITIONS.written)
        await self._journal.append(msgspec.json.encode(named))


def _is_sound(one: Checkpoint) -> bool:
    """Whether a checkpoint can count: the first one begins a log, and points rise."""
    offsets = [offset for offset, _ in one.points]
    positions = [position for _, position in one.points]
    return (
        bool(one.points)
        and (one.anew or one.number > 0)
        and min(offsets[0], positions[0]) >= 0
        and offsets == sorted(offsets)
        and positions == sorted(positions)
    )
