"""The rates that policies allow a topic: so many messages and bytes in each period, in and out.

As in Pulsar, what begins within the rate goes through whole: the next waits until the balance is positive again.
"""

import asyncio
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import TopicRate
from penstock.runtime.clock import Clock

_BALANCE_MIN: Final = 1e-9


class Throttle:
    """One bounded rate. The balance starts with one period's share, and never holds more."""

    def __init__(self, rate: TopicRate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._at = clock.monotonic_ms()
        self._messages = float(rate.messages)
        self._bytes = float(rate.bytes)

    def wait_ms(self) -> int:
        """How long nothing may go; 0: something may go now."""
        self._refill()
        wait = 0.0
        for left, most in ((self._messages, self.rate.messages), (self._bytes, self.rate.bytes)):
            if most > 0 and left <= _BALANCE_MIN:
                wait = max(wait, 1 - left * 1000 * self.rate.period_s / most)
        return int(-(-wait // 1))

    def take(self, messages: int, size: int) -> None:
        """Count what goes."""
        self._refill()
        self._messages -= messages
        self._bytes -= size

    def _refill(self) -> None:
        now = self._clock.monotonic_ms()
        periods = (now - self._at) / (1000 * self.rate.period_s)
        self._at = now
        rate = self.rate
        self._messages = min(float(rate.messages), self._messages + periods * rate.messages)
        self._bytes = min(float(rate.bytes), self._bytes + periods * rate.bytes)


class PublishThrottle:
    """Delays publishers, in their order, at most for `hold_ms`."""

    def __init__(self, rate: TopicRate, clock: Clock, hold_ms: int) -> None:
        self._throttle = Throttle(rate, clock)
        self._clock = clock
        self._hold_ms = hold_ms
        self._turn = asyncio.Lock()  # gives turns in the order they were asked for
        self._waiting = 0
        self._over: asyncio.Future[None] | None = None
        self._ended: PenstockError | None = None

    @property
    def rate(self) -> TopicRate:
        return self._throttle.rate

    async def admit(self, messages: int, size: int) -> None:
        """Complete when so much may be appended.

        Raises TOO_MANY_REQUESTS if it had to wait for too long; the error given to `end`.
        """
        if not self._waiting and not self._throttle.wait_ms() and self._ended is None:
            self._throttle.take(messages, size)
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(None) as bound:
                limit = self._clock.call_later(
                    self._hold_ms, lambda: bound.reschedule(asyncio.get_running_loop().time())
                )
                try:
                    await self._wait(messages, size)
                finally:
                    limit.cancel()
        except TimeoutError:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"publishing is beyond publishRate, and waited {self._hold_ms} ms",
            ) from None
        finally:
            self._waiting -= 1

    async def _wait(self, messages: int, size: int) -> None:
        async with self._turn:
            while self._ended is None and (wait := self._throttle.wait_ms()):
                self._over = asyncio.get_running_loop().create_future()
                timer = self._clock.call_later(wait, self._wake)
                try:
                    await self._over
                finally:
                    timer.cancel()
                    self._over = None
            if self._ended is not None:
                raise self._ended
            self._throttle.take(messages, size)

    def change(self, rate: TopicRate) -> None:
        """Set another rate, also for waiting publishers."""
        self._throttle = Throttle(rate, self._clock)
        self._wake()

    def end(self, why: PenstockError) -> None:
        """Nothing waits any longer: later calls raise `why`."""
        self._ended = why
        self._wake()

    def _wake(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
