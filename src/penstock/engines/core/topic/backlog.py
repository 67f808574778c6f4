"""The backlog quota of a topic, as producers meet it.

The check is cheap while there is surely room: the last measured backlog plus the bytes appended since is
at least the current backlog. Only if that exceeds the quota the store is asked, and again only after a cursor
moved.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.engines.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import InForce, QuotaAction
from penstock.runtime.clock import Timer
from penstock.runtime.statistics import Rate

from .log import TopicLog

LOOK_AGAIN_MS: Final = 1000  # while a publish is held, besides every move of a cursor


class Measured(NamedTuple):
    """The backlog of the slowest durable subscription at one moment."""

    mark: int  # the slowest; the topic's end without durable subscriptions
    bytes: int
    oldest_ms: int  # publish time of the oldest message; now if there is none
    appended: int  # bytes appended to the topic until then
    empty: bool


class Backlog:
    """One topic's quotas; `policies` are those in force."""

    def __init__(
        self,
        log: TopicLog,
        subscriptions: Mapping[str, Subscription],
        rate_in: Rate,
        policies: InForce,
        evict: Callable[[], None],
        hold_ms: int,
    ) -> None:
        """`evict` has the slowest subscriptions moved on soon; `hold_ms` is how long a publish waits at most."""
        self.policies = policies
        self._log = log
        self._subscriptions = subscriptions
        self._rate_in = rate_in
        self._evict = evict
        self._hold_ms = hold_ms
        self._measured: Measured | None = None
        self._held: deque[asyncio.Future[None]] = deque()
        self._timer: Timer | None = None
        self._ended: PenstockError | None = None

    def end(self, why: PenstockError) -> None:
        """No publish is held any more, now and later: it fails with `why`."""
        self._ended = why
        for one in self._held:
            if not one.done():
                one.set_exception(why)

    def forget(self) -> None:
        """A cursor moved back, or was created: the measured backlog may be too small."""
        self._measured = None

    def moved(self) -> None:
        """A cursor moved or went, or other policies hold: there may be room again."""
        for one in self._held:
            if not one.done():
                one.set_result(None)

    # -- publishing

    @property
    def surely_room(self) -> bool:
        """Whether the backlog cannot be beyond its quotas."""
        size, age = self.policies.size_quota, self.policies.age_quota
        if size.limit < 0 and age.limit < 0:
            return True
        known = self._measured
        if known is None or self._held:
            return False
        return self._within(known)

    def _within(self, known: Measured) -> bool:
        size, age = self.policies.size_quota.limit, self.policies.age_quota.limit
        if 0 <= size <= known.bytes + self._rate_in.bytes - known.appended:
            return False
        return age < 0 or self._log.clock.now_ms() - known.oldest_ms <= 1000 * age

    async def admit(self) -> None:
        """Complete when something may be appended.

        Raises BACKLOG_QUOTA_EXCEPTION; BACKLOG_QUOTA_HOLD if there was no room for `quota_hold_ms`; the
        reason that `end` was given.
        """
        error = self._refused(QuotaAction.HOLD) if self._held else await self._refusal()
        if error is None:
            return
        if error.kind is not ErrorKind.BACKLOG_QUOTA_HOLD:
            raise error
        if self._ended is not None:
            raise self._ended
        try:
            async with asyncio.timeout(None) as bound:
                limit = self._log.clock.call_later(
                    self._hold_ms, lambda: bound.reschedule(asyncio.get_running_loop().time())
                )
                try:
                    await self._hold()
                finally:
                    limit.cancel()
        except TimeoutError:
            raise error from None

    async def _hold(self) -> None:
        """Wait for room, in turn."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._held.append(turn)
        self._look_again()
        try:
            while True:
                await turn
                self._log.check_open()
                if self._ended is not None:
                    raise self._ended
                if self._held[0] is turn and await self._refusal() is None:
                    return
                index = self._held.index(turn)
                turn = self._held[index] = loop.create_future()
        finally:
            self._held.remove(turn)
            self.moved()  # the next has its turn
            if not self._held and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = self._log.clock.call_later(LOOK_AGAIN_MS, self._due)

    def _due(self) -> None:
        self._timer = None
        self.moved()
        if self._held:
            self._look_again()

    async def check(self) -> None:
        """Raise why no producer may be created: BACKLOG_QUOTA_HOLD, BACKLOG_QUOTA_EXCEPTION."""
        if not self.surely_room:
            error = await self._refusal()
            if error is not None:
                raise error

    async def _refusal(self) -> PenstockError | None:
        """Why nothing may be appended now, or None. Eviction is requested, and refuses nothing."""
        over = await self.over()
        if over is None:
            return None
        if over is QuotaAction.EVICT:
            self._evict()
            return None
        return self._refused(over)

    def _refused(self, action: QuotaAction) -> PenstockError:
        held = action is QuotaAction.HOLD
        kind = ErrorKind.BACKLOG_QUOTA_HOLD if held else ErrorKind.BACKLOG_QUOTA_EXCEPTION
        return PenstockError(kind, f"the backlog of {self._log.name} is beyond its quota")

    # -- measuring

    async def over(self) -> QuotaAction | None:
        """The action that the backlog requires; None while it is within its quotas."""
        known = self._measured
        if known is None or (not self._within(known) and (known.empty or known.mark != self.slowest)):
            known = await self.measure()
        if self._within(known):
            return None
        size, age = self.policies.size_quota, self.policies.age_quota
        if 0 <= size.limit <= known.bytes + self._rate_in.bytes - known.appended:
            return size.action
        return age.action

    @property
    def slowest(self) -> int:
        """The least mark of the durable subscriptions; the topic's end if there are none."""
        marks = [s.cursor.mark for s in self._subscriptions.values() if s.durable]
        return min(marks, default=self._log.next_offset)

    async def measure(self) -> Measured:
        """The backlog as it is now."""
        log = self._log
        mark, appended, now = self.slowest, self._rate_in.bytes, log.clock.now_ms()
        size, oldest = 0, None
        if mark < log.next_offset:
            oldest = next(iter(await log.read_at(mark, 1, 1)), None)
            if oldest is not None:
                size = await log.size_since(oldest.entry_id)
        since = now if oldest is None else min(now, oldest.publish_time)
        self._measured = Measured(mark, size, since, appended, oldest is None)
        return self._measured
