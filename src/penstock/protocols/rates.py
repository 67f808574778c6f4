"""How much a role may do in a second, over all endpoints together: requests, and bytes in both directions.

Two marks in time a role say when all that it did so far is paid for (a leaky bucket). If a request can be
refused it is, with the time after which it would not be; if it cannot, the server reads or delivers later.
"""

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import Annotated, Final
from weakref import WeakValueDictionary

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock

BURST_MS: Final = 1000  # unused allowance that may be used at once
# No longer at a time: clients take half a minute without a sign of life for a lost connection.
PAUSE_MS_MAX: Final = 20_000
KNOWN_MAX: Final = 10_000  # roles or addresses in memory, before those whose time has come are dropped
SCOPE_KEY: Final = "penstock.allowance"  # the key of a caller's allowance in an ASGI scope

_ROUNDING_MS: Final = 1e-3

Rate = Annotated[int, msgspec.Meta(ge=0)]


class RoleRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of one role; None: as every role's, 0: without bound."""

    max_requests_per_s: Rate | None = None
    max_bytes_per_s: Rate | None = None


class Allowance:
    """The allowance of one role, or of one address if authentication is off."""

    __slots__ = (
        "__weakref__",
        "_byte_ms",
        "_bytes_due",
        "_clock",
        "_name",
        "_reasons",
        "_request_ms",
        "_requests_due",
    )

    def __init__(self, clock: Clock, name: str, requests_per_s: int, bytes_per_s: int) -> None:
        self._clock = clock
        self._name = name
        self._requests_due = self._bytes_due = float("-inf")
        self.change(requests_per_s, bytes_per_s)

    def change(self, requests_per_s: int, bytes_per_s: int) -> None:
        """Other rates from now on; 0 is without bound."""
        self._request_ms = 1000 / requests_per_s if requests_per_s else 0.0
        self._byte_ms = 1000 / bytes_per_s if bytes_per_s else 0.0
        if not requests_per_s:
            self._requests_due = float("-inf")
        if not bytes_per_s:
            self._bytes_due = float("-inf")
        self._reasons = (
            f"{self._name} has limits.max_requests_per_s = {requests_per_s}",
            f"{self._name} has limits.max_bytes_per_s = {bytes_per_s}",
        )

    def enter(self) -> None:
        """Begin a request; raises TOO_MANY_REQUESTS, with the time after which it will be welcome."""
        now = self._clock.monotonic_ms()
        due = max(self._requests_due, now - BURST_MS) + self._request_ms
        for late, reason in zip((due - now, self._bytes_due - now), self._reasons, strict=True):
            if late > _ROUNDING_MS:
                refused = PenstockError(ErrorKind.TOO_MANY_REQUESTS, reason)
                refused.retry_after_s = max(1, ceil((late - _ROUNDING_MS) / 1000))
                raise refused
        self._requests_due = due

    def take(self, requests: int, size: int) -> float:
        """Count work of `size` bytes; returns the ms to wait before more."""
        now = self._clock.monotonic_ms()
        oldest, latest = now - BURST_MS, now + PAUSE_MS_MAX
        self._requests_due = min(latest, max(self._requests_due, oldest) + requests * self._request_ms)
        self._bytes_due = min(latest, max(self._bytes_due, oldest) + size * self._byte_ms)
        wait = max(self._requests_due, self._bytes_due) - now
        return wait if wait > _ROUNDING_MS else 0.0

    async def spend(self, requests: int, size: int) -> None:
        """Count work, and complete when more may be done."""
        wait = self.take(requests, size)
        if wait:
            await pause(self._clock, wait)

    @property
    def in_use(self) -> bool:
        """Whether it differs from a new one."""
        oldest = self._clock.monotonic_ms() - BURST_MS
        return max(self._requests_due, self._bytes_due) > oldest


class Rates:
    """The allowances of all."""

    def __init__(
        self, clock: Clock, requests_per_s: int, bytes_per_s: int, roles: Mapping[str, RoleRates]
    ) -> None:
        self._clock = clock
        self._general = requests_per_s, bytes_per_s
        self._roles = roles
        # Connections keep theirs: it must stay the one of its role for as long.
        self._known: WeakValueDictionary[str, Allowance] = WeakValueDictionary()
        self._recent: dict[str, Allowance] = {}
        self._sweep_at = KNOWN_MAX

    def change(self, requests_per_s: int, bytes_per_s: int, roles: Mapping[str, RoleRates]) -> None:
        """Other rates from now on, also for connections that are there and had a bound."""
        self._general = requests_per_s, bytes_per_s
        self._roles = roles
        for name, one in list(self._known.items()):
            one.change(*self._of(name))

    def of(self, name: str, kind: str = "role") -> Allowance | None:
        """The allowance of a role (or of an address: `kind` is for messages); None if it is without bound."""
        found = self._known.get(name)
        if found is None:
            requests, size = self._of(name)
            if not requests and not size:
                return None
            found = self._known[name] = Allowance(self._clock, f"{kind} {name!r}", requests, size)
        if name not in self._recent:
            if len(self._recent) >= self._sweep_at:
                self._sweep()
            self._recent[name] = found
        return found

    def _of(self, name: str) -> tuple[int, int]:
        requests, size = self._general
        own = self._roles.get(name)
        if own is not None:
            requests = requests if own.max_requests_per_s is None else own.max_requests_per_s
            size = size if own.max_bytes_per_s is None else own.max_bytes_per_s
        return requests, size

    def _sweep(self) -> None:
        self._recent = {name: one for name, one in self._recent.items() if one.in_use}
        self._sweep_at = max(KNOWN_MAX, 2 * len(self._recent))


async def pause(clock: Clock, ms: float) -> None:
    """Complete after `ms` of a clock that tests can turn."""
    over = asyncio.Event()
    timer = clock.call_later(ms, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
