"""Connection errors of librdkafka's clients: rate-limited log lines, counts, and whether the cluster refuses this server."""

import logging
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

import msgspec
from confluent_kafka import KafkaError

from .errors import CREDENTIALS

log = logging.getLogger(__name__)

LOG_S: Final = 60.0  # between log lines for one kind of client and one error
QUIET_S: Final = 40.0  # without an error a client works again: librdkafka repeats the same error after 30 s
SERIES_MAX: Final = 200  # pairs of client kind and error that are counted; further ones count as OTHERS
OTHERS: Final = ("other", "other")

# The cluster rejects this server's credentials, or this server rejects the cluster's certificate.
REFUSALS: Final = CREDENTIALS | {KafkaError._SSL}


class _Series(msgspec.Struct):
    """The errors of one kind of client with one code."""

    count: int = 0
    unlogged: int = 0  # since the last line
    logged_s: float | None = None


class _Failing(msgspec.Struct):
    """A kind of client that is failing."""

    first_s: float
    last_s: float
    logged: bool = False  # without a log line its recovery is not logged either


class ClientErrors:
    """Thread-safe: librdkafka calls back on the thread that polls a client."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._series: dict[tuple[str, str], _Series] = {}
        self._failing: dict[str, _Failing] = {}  # by kind
        self._refusal: tuple[KafkaError, float] | None = None

    def report(self, kind: str, error: KafkaError) -> None:
        """Count an error of a client of a kind (`producer`, `member`, …), and log it if none was logged lately."""
        refusal = error.code() in REFUSALS
        with self._lock:
            now = self._now()
            if refusal:
                since = now if self._refusal is None else self._refusal[1]
                self._refusal = error, since
            failing = self._failing.setdefault(kind, _Failing(now, now))
            failing.last_s = now
            key = kind, error.name()
            if key not in self._series and len(self._series) >= SERIES_MAX:
                key = OTHERS
            found = self._series.setdefault(key, _Series())
            found.count += 1
            found.unlogged += 1
            if found.logged_s is not None and now - found.logged_s < LOG_S:
                return
            found.logged_s, times, found.unlogged = now, found.unlogged, 0
            failing.logged = True
        log.log(
            logging.WARNING if refusal or error.fatal() else logging.INFO,
            "a client of Kafka reports an error",
            extra={"client": kind, "error": error.name(), "reason": error.str(), "times": times},
        )

    def recovered(self, *, authenticated: bool) -> None:
        """The cluster answered; `authenticated`: on a new connection, so it accepts the credentials."""
        with self._lock:
            now = self._now()
            if authenticated:
                self._refusal = None
            recovered = {
                kind: one
                for kind, one in self._failing.items()
                if authenticated or (self._refusal is None and now - one.last_s > QUIET_S)
            }
            for kind in recovered:
                del self._failing[kind]
            for (kind, _), series in self._series.items():
                # The next error is news, but not if the cluster lets in one client and refuses another.
                logged_s = series.logged_s
                if kind not in self._failing and logged_s is not None and now - logged_s > QUIET_S:
                    series.logged_s = None
        for kind, one in recovered.items():
            if one.logged:
                failed_s = round(one.last_s - one.first_s, 1)
                log.info("a client of Kafka works again", extra={"client": kind, "failed_s": failed_s})

    def refusal(self, after_s: float = 0.0) -> KafkaError | None:
        """Why the cluster refuses this server, if it has done so for that long; None if it does not."""
        with self._lock:
            if self._refusal is None or self._now() - self._refusal[1] < after_s:
                return None
            return self._refusal[0]

    def counts(self) -> dict[tuple[str, str], int]:
        """How many errors were reported, by kind of client and code."""
        with self._lock:
            return {key: series.count for key, series in self._series.items()}
