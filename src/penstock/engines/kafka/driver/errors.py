"""What Kafka refuses, as the endpoints answer it; and the errors of librdkafka's clients: log lines, counts, and whether the cluster
refuses this server.
"""

import logging
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException

from penstock.model.errors import ErrorKind, PenstockError

log = logging.getLogger(__name__)

_E = KafkaError

_KINDS: Final[dict[int, ErrorKind]] = {
    _E.UNKNOWN_TOPIC_OR_PART: ErrorKind.TOPIC_NOT_FOUND,
    _E.UNKNOWN_TOPIC_ID: ErrorKind.TOPIC_NOT_FOUND,
    _E._UNKNOWN_TOPIC: ErrorKind.TOPIC_NOT_FOUND,
    _E._UNKNOWN_PARTITION: ErrorKind.PARTITION_NOT_FOUND,
    _E.TOPIC_ALREADY_EXISTS: ErrorKind.ALREADY_EXISTS,
    _E.TOPIC_EXCEPTION: ErrorKind.BAD_PARAMETER,  # a name that Kafka does not allow
    _E.INVALID_PARTITIONS: ErrorKind.BAD_PARAMETER,
    _E.INVALID_REPLICATION_FACTOR: ErrorKind.BAD_PARAMETER,
    _E.INVALID_REPLICA_ASSIGNMENT: ErrorKind.BAD_PARAMETER,
    _E.INVALID_CONFIG: ErrorKind.BAD_PARAMETER,
    _E.INVALID_REQUEST: ErrorKind.BAD_PARAMETER,
    _E.INVALID_GROUP_ID: ErrorKind.BAD_PARAMETER,
    _E.INVALID_TIMESTAMP: ErrorKind.BAD_PARAMETER,
    _E.INVALID_RECORD: ErrorKind.BAD_PARAMETER,  # as a compacted topic's without a key
    _E.POLICY_VIOLATION: ErrorKind.BAD_PARAMETER,
    _E._INVALID_ARG: ErrorKind.BAD_PARAMETER,
    _E.MSG_SIZE_TOO_LARGE: ErrorKind.TOO_LARGE,
    _E.RECORD_LIST_TOO_LARGE: ErrorKind.TOO_LARGE,
    _E.OFFSET_METADATA_TOO_LARGE: ErrorKind.TOO_LARGE,
    _E.TOPIC_AUTHORIZATION_FAILED: ErrorKind.FORBIDDEN,
    _E.GROUP_AUTHORIZATION_FAILED: ErrorKind.FORBIDDEN,
    _E.CLUSTER_AUTHORIZATION_FAILED: ErrorKind.FORBIDDEN,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorKind.FORBIDDEN,
    _E.TOPIC_DELETION_DISABLED: ErrorKind.FORBIDDEN,
    _E.GROUP_ID_NOT_FOUND: ErrorKind.SUBSCRIPTION_NOT_FOUND,
    _E.NON_EMPTY_GROUP: ErrorKind.SUBSCRIPTION_BUSY,
    _E.GROUP_SUBSCRIBED_TO_TOPIC: ErrorKind.SUBSCRIPTION_BUSY,
    _E.OFFSET_OUT_OF_RANGE: ErrorKind.MESSAGE_NOT_FOUND,
    _E.KAFKA_STORAGE_ERROR: ErrorKind.STORAGE_FAILED,
    _E.UNSUPPORTED_VERSION: ErrorKind.NOT_SUPPORTED,
    _E._UNSUPPORTED_FEATURE: ErrorKind.NOT_SUPPORTED,
}
# It is the server that is refused, not its caller.
CREDENTIALS: Final = frozenset(
    (_E._AUTHENTICATION, _E.SASL_AUTHENTICATION_FAILED, _E.UNSUPPORTED_SASL_MECHANISM)
)
_NOT_ACQUIRED: Final = "Failed to acquire SASL OAUTHBEARER token: "  # librdkafka's
# Worth a retry at once: the brokers, or this client, have not learned of a recent change.
_PASSING: Final = frozenset(
    (
        _E.NOT_LEADER_FOR_PARTITION,
        _E.LEADER_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.REPLICA_NOT_AVAILABLE,
        _E.NOT_CONTROLLER,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.FENCED_LEADER_EPOCH,
        _E.OFFSET_NOT_AVAILABLE,
        _E._WAIT_COORD,
        _E._WAIT_CACHE,
        _E._NODE_UPDATE,
        _E._RETRY,
        _E._NOENT,  # no leaders are known: of a topic that was just created, or that is not there
    )
)
LOG_S: Final = 60.0  # between log lines for one kind of client and one error
QUIET_S: Final = 40.0  # without an error a client works again: librdkafka repeats the same error after 30 s
SERIES_MAX: Final = 200  # pairs of client kind and error that are counted; further ones count as OTHERS
OTHERS: Final = ("other", "other")
# The cluster rejects this server's credentials, or this server rejects the cluster's certificate.
REFUSALS: Final = CREDENTIALS | {KafkaError._SSL}


def error_of(error: KafkaError | KafkaException) -> KafkaError | None:
    """Kafka's error within an exception, or None."""
    if isinstance(error, KafkaError):
        return error
    first = error.args[0] if error.args else None
    return first if isinstance(first, KafkaError) else None


def passes(error: KafkaError | KafkaException) -> bool:
    """Whether it helps to ask again at once."""
    found = error_of(error)
    return found is not None and found.code() in _PASSING


def ends_client(error: KafkaError | KafkaException) -> bool:
    """Whether the client that raised an error does nothing any more: another one has to take its place."""
    found = error_of(error)
    # Later calls raise _FATAL, which librdkafka does not mark as fatal.
    return found is not None and (found.fatal() or found.code() == _E._FATAL)


def engine_error(error: KafkaError | KafkaException, what: str = "") -> PenstockError:
    """An error of Kafka's; `what` begins the sentence, such as a topic's name. Unknown errors are UNAVAILABLE."""
    found = error_of(error)
    if found is None:
        return PenstockError(ErrorKind.UNAVAILABLE, f"the cluster failed: {error}")
    text = found.str().removeprefix("Broker: ").removeprefix("Local: ")
    kind = _KINDS.get(found.code(), ErrorKind.UNAVAILABLE)
    if text.startswith(_NOT_ACQUIRED):
        text = f"this server has no token for the cluster: {text.removeprefix(_NOT_ACQUIRED)}"
    elif found.code() in CREDENTIALS:
        text = f"the cluster refuses the credentials of this server: {text}"
    elif kind is ErrorKind.UNAVAILABLE:
        text = f"the cluster does not do it now: {text}"
    return PenstockError(kind, f"{what}: {text}" if what else text)


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
