"""The cursors of all slots, kept in a journal; saved by the owner of a slot, known to every process.

A save is answered once its record was read back and counts: a process that was replaced learns of that before it answers. One
record is written at a time; saves that arrive during a write go together in the next one.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from penstock.engines.kafka.driver.shared_log import Journal, JournalReader, JournalRecord
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import CURSORS
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.statistics import SECONDS, Histogram
from penstock.runtime.tasks import Tasks

from .state import (
    CLAIM,
    DONE,
    RECORD_BYTES,
    SAVE,
    Claim,
    CursorKey,
    CursorRecord,
    JournalState,
    Read,
    StoredCursor,
    Waiting,
    deletion_of,
    encode_claim,
    encode_done,
    encode_save,
    packed,
    replaced,
    slot_of,
)

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 4 * RECORD_BYTES  # of saves that are written and answered together
WAITING_MAX: Final = 10_000  # saves
CHECKPOINT_RECORDS: Final = 10_000  # after which a slot's cursors are written as a whole
CHECKPOINT_BYTES: Final = 64 << 20
CHECKPOINT_SHARE: Final = 4  # times the last checkpoint: else large ones would be written without end
CHECKPOINT_CURSORS: Final = 200  # that are written before other saves go on


class Cursors(JournalReader):
    """`group` is the consumer group that shares out slots; `process` is a name that no other start of a process has."""

    def __init__(
        self,
        open_journal: Callable[[JournalReader], Journal],
        tasks: Tasks,
        failures: Failures,
        *,
        group: str,
        process: str,
    ) -> None:
        self.group = group
        self.process = process
        # Called with the slots that others own now: if the group still assigns them to this process, it claims them again.
        self.on_replaced: list[Callable[[Sequence[int]], None]] = []
        # Called with the reason if this process cannot own slots at all.
        self.on_refused: list[Callable[[PenstockError], None]] = []
        self.on_claimed: list[Callable[[Collection[int]], None]] = []  # with the slots, by any process
        self.on_saved: list[Callable[[Iterable[CursorKey]], None]] = []  # or deleted
        self.saves = Histogram(SECONDS)  # until changes were durable
        self._tasks = tasks
        self._failures = failures
        self._journal = open_journal(self)
        self.set_slots(0)
        self._started = False
        self._newest = -1  # the offset of the last claim: those before it are read again after a gap
        self._refusal: PenstockError | None = None
        self._numbers = count(1)
        self._outcomes: dict[int, Read | None] = {}  # of records that are being written
        # The numbers of claims that take slots, rather than begin new terms of those that this process owns.
        self._taking: set[int] = set()
        self._wanted: set[int] = set()  # slots that were claimed and not released
        self._terms: dict[int, str] = {}  # of the slots that this process owns
        # For each of them the claim that took it: saves from before belong to an earlier holding, and are void.
        self._holdings: dict[int, int] = {}
        # Slots of records whose outcome is unknown: they are claimed again before the next save.
        self._unsettled: set[int] = set()
        self._writing = asyncio.Lock()
        self._queue: deque[Waiting] = deque()
        self._batch: list[Waiting] = []
        self._saving = False

    def set_slots(self, slots: int) -> None:
        """The number of slots of the service, before anything is read."""
        self.slots = slots
        self.state = JournalState(slots)  # of the journal, as far as it was read

    async def start(self) -> None:
        """Read the journal. Raises UNAVAILABLE, and BAD_PARAMETER if the service has another number of slots."""
        await self._journal.start()
        newest = self.state.newest
        if newest is not None and (foreign := self._foreign(newest)) is not None:
            if newest.slots != self.slots:
                raise foreign
            extra = {"topic": self._journal.topic, "before": newest.group, "now": self.group}
            log.warning("cursors are taken over from another group", extra=extra)
        self._started = True

    async def close(self) -> None:
        """Stop reading. Saves that are not answered fail."""
        self._refusal = PenstockError(ErrorKind.UNAVAILABLE, "the server is stopping")
        for waiting in [*self._batch, *self._queue]:
            waiting.end(self._refusal)
        self._queue.clear()
        await self._journal.close()

    # -- slots

    def slot(self, topic: str, partition: int) -> int:
        """The slot of a partition."""
        return slot_of(topic, partition, self.slots)

    def owner(self, slot: int) -> str | None:
        """The process that claimed the slot last; None if there was none."""
        claim = self.state.slots[slot].claim
        return None if claim is None else claim.process

    @property
    def owned(self) -> Collection[int]:
        """The slots that this process claimed, as far as the journal was read."""
        return self._terms.keys()

    async def claim(self, slots: Iterable[int]) -> None:
        """Own slots. Everything that earlier owners saved is known afterwards, and nothing that they write later counts. Raises
        UNAVAILABLE, and BAD_PARAMETER if another service uses the journal."""
        self._check()
        wanted = sorted(slots)
        self._wanted.update(wanted)
        async with self._writing:
            await self._claim(wanted, take=True)

    async def _claim(self, slots: Sequence[int], *, take: bool = False) -> dict[int, str]:
        """Claim, and return the terms; without `take` a slot that another process claimed before stays lost."""
        terms = {slot: secrets.token_hex(8) for slot in slots}
        number = next(self._numbers)
        claim = Claim(self.group, self.slots, self.process, number, terms)
        if take:
            self._taking.add(number)
        try:
            await self._append(number, CLAIM, encode_claim(claim), slots)
        finally:
            self._taking.discard(number)
        return terms

    async def release(self, slots: Iterable[int]) -> None:
        """Give slots up once their saves so far are answered."""
        given = frozenset(slots)
        pending = [one.future for one in [*self._batch, *self._queue] if one.holdings.keys() & given]
        if pending:
            await asyncio.wait(pending)
        self.forget(given)

    def forget(self, slots: Iterable[int]) -> None:
        """Give slots up now: saves of them fail."""
        for slot in slots:
            self._wanted.discard(slot)
            self._terms.pop(slot, None)
            self._unsettled.discard(slot)

    async def confirm(self) -> None:
        """Find out which slots this process still owns: `replaced` was called with the others. Raises UNAVAILABLE."""
        self._check()
        async with self._writing:
            await self._settle(self._terms.keys())
            if self._terms:
                await self._write_save((), dict(self._terms))

    # -- cursors

    def load(self, slot: int) -> Mapping[CursorKey, StoredCursor]:
        """The cursors of a slot that this process owns. Raises Replaced, and NEWER_FORMAT if some cannot be read."""
        self._check_owned((slot,))
        found = self.state.slots[slot]
        if found.unknown is not None:
            raise PenstockError(found.unknown.kind, found.unknown.message)
        return found.cursors

    def known(self, topic: str, partition: int) -> Mapping[str, StoredCursor]:
        """The cursors of any partition by subscription, as far as the journal was read."""
        return self.state.cursors_of(topic, partition)

    async def save(self, changes: Sequence[CursorRecord]) -> None:
        """Save changes; completes when they are durable and every later owner of their slots will know them.

        Raises Replaced if a slot is not this process's, UNAVAILABLE if the outcome is unknown. A part of the changes may be
        stored then: save them again.
        """
        if not changes:
            return
        slots = frozenset(self.slot(one.topic, one.partition) for one in changes)
        self._check_owned(slots)
        if len(self._queue) >= WAITING_MAX:
            raise PenstockError(ErrorKind.UNAVAILABLE, "too many cursors are waiting to be saved")
        loop = asyncio.get_running_loop()
        began, future = loop.time(), loop.create_future()
        holdings = {slot: self._holdings[slot] for slot in slots}
        self._queue.append(Waiting(changes, holdings, sum([one.size for one in changes]), future))
        if not self._saving:
            self._saving = True
            self._tasks.spawn(self._save_all(), "save cursors")
        await future
        for saved in self.on_saved:
            saved([one.key for one in changes])
        self.saves.observe(loop.time() - began)

    async def delete_all(self, keys: Iterable[CursorKey]) -> int:
        """Delete cursors, as `save`; one that another topic has by then stays. Returns how many there were."""
        slots = {key: self.load(self.slot(key.topic, key.partition)) for key in keys}
        gone = [deletion_of(key, found[key].topic_id) for key, found in slots.items() if key in found]
        await self.save(gone)
        return len(gone)

    def _check(self) -> None:
        if self._refusal is not None:
            raise PenstockError(self._refusal.kind, self._refusal.message)

    def _check_owned(self, slots: Iterable[int]) -> None:
        self._check()
        for slot in slots:
            if slot not in self._terms:
                raise replaced(slot)

    # -- writing

    async def _save_all(self) -> None:
        try:
            while self._queue:
                async with self._writing:
                    size = 0
                    while self._queue and (not self._batch or size + self._queue[0].size <= BATCH_BYTES):
                        self._batch.append(self._queue.popleft())
                        size += self._batch[-1].size
                    try:
                        await self._save_batch()
                    finally:
                        self._batch = []
        finally:
            self._saving = False

    async def _save_batch(self) -> None:
        lacking: set[int] = set()  # slots for which a record did not count
        try:
            await self._settle({slot for one in self._batch for slot in one.holdings})
            terms = dict(self._terms)
            valid = [one for one in self._batch if self._are_current(one.holdings)]
            changes = [change for one in valid for change in one.changes]
            for part in packed(changes):
                lacking.update(await self._write_save(part, terms))
        except PenstockError as error:
            for one in self._batch:
                one.end(error)
            return
        for one in self._batch:
            missed = (
                min(one.holdings) if one not in valid else min(one.holdings.keys() & lacking, default=None)
            )
            one.end(None if missed is None else self._not_counted(missed, one.holdings))

    def _are_current(self, holdings: Mapping[int, int]) -> bool:
        """Whether this process has owned the slots without a break since."""
        return all(
            slot in self._terms and self._holdings[slot] == number for slot, number in holdings.items()
        )

    def _not_counted(self, slot: int, holdings: Mapping[int, int]) -> PenstockError:
        if self._are_current(holdings):  # an earlier claim of this process arrived late
            return PenstockError(ErrorKind.UNAVAILABLE, f"cursors of slot {slot} have to be saved again")
        return replaced(slot)

    async def _settle(self, slots: Collection[int]) -> None:
        """Claim slots again whose last record has an unknown outcome: stored late, it does not count behind the claim."""
        unsettled = sorted(self._unsettled.intersection(slots, self._terms))
        if unsettled:
            await self._claim(unsettled)

    async def _write_save(self, changes: Sequence[CursorRecord], terms: Mapping[int, str]) -> frozenset[int]:
        """Write one record; returns the slots for which it does not count. Without changes it is about all terms."""
        if changes:
            slots = {self.slot(one.topic, one.partition) for one in changes}
            terms = {slot: terms[slot] for slot in slots}
        number = next(self._numbers)
        value = encode_save(self.process, number, dict(terms), changes)
        read = await self._append(number, SAVE, value, terms.keys())
        return frozenset(terms) - read.counts

    async def _append(self, number: int, kind: bytes, value: bytes, slots: Collection[int]) -> Read:
        """Write a record and return what it was when it was read back."""
        self._outcomes[number] = None
        headers = () if kind == CLAIM else CURSORS.headers()
        try:
            await self._journal.append(kind, value, headers)
            read = self._outcomes[number]
            if read is None:  # it was trimmed before it was read
                raise PenstockError(ErrorKind.UNAVAILABLE, "the cursors' journal was read from its beginning")
        except BaseException:
            self._unsettled.update(slots)
            raise
        finally:
            del self._outcomes[number]
        return read

    # -- checkpoints

    async def maintain(self) -> None:
        """Write a checkpoint if the journal has grown, and delete what no slot needs. Raises UNAVAILABLE, FORBIDDEN."""
        due = self.due
        if due:
            await self.checkpoint(due)
        await self.trim()

    @property
    def due(self) -> list[int]:
        """The slots of this process that should have a checkpoint."""
        state, journal = self.state, self._journal

        def is_due(slot: int) -> bool:
            found = state.slots[slot]
            begin = journal.begin if found.begin is None else found.begin
            grown = state.bytes - found.begin_bytes
            most = max(CHECKPOINT_BYTES, CHECKPOINT_SHARE * found.whole_bytes)
            return journal.position - begin >= CHECKPOINT_RECORDS or grown >= most

        return sorted(filter(is_due, self._terms))

    async def checkpoint(self, slots: Iterable[int]) -> None:
        """Write all cursors of slots, so that everything before is superseded. Other saves go on between the records.

        Slots that this process loses during that have no checkpoint then. Raises UNAVAILABLE.
        """
        self._check()
        async with self._writing:
            owned = sorted(self._terms.keys() & set(slots))
            if not owned:
                return
            # Everything is written under these terms: a slot claimed again has its cursors before the new claim.
            terms = await self._claim(owned)
        keys = [(slot, key) for slot in terms for key in self.state.slots[slot].cursors]
        for start in range(0, len(keys), CHECKPOINT_CURSORS):
            async with self._writing:
                wholes = [self.state.whole(*one) for one in keys[start : start + CHECKPOINT_CURSORS]]
                for part in packed([one for one in wholes if one is not None]):
                    await self._write_save(part, terms)
        async with self._writing:
            number = next(self._numbers)
            await self._append(number, DONE, encode_done(self.process, number, terms), terms.keys())

    async def trim(self) -> None:
        """Delete the records that no slot needs. Raises UNAVAILABLE, FORBIDDEN."""
        offset = self.state.superseded()
        if offset is not None and offset > self._journal.begin:
            await self._journal.trim(offset)

    # -- reading

    def read(self, records: Sequence[JournalRecord]) -> None:
        gone: dict[int, None] = {}
        claimed: set[int] = set()
        for record in records:
            found = self.state.apply(record)
            if found is None:
                continue
            own = found.process == self.process
            if found.claim is not None:
                self._claimed(found.claim, record.offset, own and found.number in self._outcomes, gone)
                claimed.update(found.claim.terms)
            if own and found.number in self._outcomes:
                self._outcomes[found.number] = found
        if gone:
            self._tell_replaced(list(gone))
        for told in self.on_claimed if claimed else ():
            told(claimed)

    def _claimed(self, claim: Claim, offset: int, expected: bool, gone: dict[int, None]) -> None:
        """A claim was read; `expected`: it is being written here."""
        if self._started and self._refusal is None and offset > self._newest:
            self._refusal = refusal = self._foreign(claim)
            if refusal is not None:
                for told in self.on_refused:
                    told(refusal)
        self._newest = max(self._newest, offset)
        for slot, term in claim.terms.items():
            if expected:
                # Another owner may have been between the last term and this one: then the slot is not ours before it was
                # asked for, and its cursors are loaded.
                take = slot in self._wanted and claim.number in self._taking
                if take:
                    self._holdings[slot] = claim.number
                if take or slot in self._terms:
                    self._terms[slot] = term
                    self._unsettled.discard(slot)
            elif slot not in self._terms:
                continue
            elif claim.process == self.process:  # one whose outcome was unknown
                self._unsettled.add(slot)
            else:
                del self._terms[slot]
                gone[slot] = None

    def _foreign(self, claim: Claim) -> PenstockError | None:
        """Why a claim is not one of this service."""
        topic = self._journal.topic
        if claim.slots != self.slots:
            what = f"the cursors in {topic} are those of {claim.slots} slots, not of {self.slots}"
        elif claim.group != self.group:
            what = f"group {claim.group} claims slots in {topic}, which is {self.group}'s"
        else:
            return None
        return PenstockError(ErrorKind.BAD_PARAMETER, what)

    def restarted(self) -> None:
        self.state = JournalState(self.slots)
        gone = list(self._terms)
        self._terms.clear()
        if gone:
            self._tell_replaced(gone)

    def _tell_replaced(self, slots: Sequence[int]) -> None:
        for told in self.on_replaced:
            told(slots)

    def failing(self, reason: str | None) -> None:
        if reason is None:
            self._failures.recovered(FailureKind.DOCUMENT, self._journal.topic)
        else:
            self._failures.failed(FailureKind.DOCUMENT, self._journal.topic, reason)
