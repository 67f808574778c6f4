"""Ranges of offsets, read by another process than the server, with its own credentials. Its calls block."""

from collections.abc import Generator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.model.errors import ErrorKind, PenstockError

from .clients import REFUSED_S, UNREACHABLE
from .errors import REFUSALS, engine_error
from .reader import FETCH_WAIT_MS, fetching, log_end, reading
from .record import At, Record

RECORDS_MAX: Final = 8192  # of one call
WAIT_S: Final = 0.25  # of one wait
AWAY_S: Final = 90.0  # without an expected record
REACHED_S: Final = 30.0  # for the first answer, in which a wrong address has to fail
END_S: Final = 10.0  # a log that ends before the range: a broker may still have to learn its end
AHEAD_KB: Final = 16_384  # that is fetched ahead, about


class LogEnds(Exception):
    """The log ends at `offset`, before the range does."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class RangeReader:
    """Reads one range at a time, of any partition; raises BAD_PARAMETER for properties that librdkafka does not take."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._heard: KafkaError | None = None
        self._refused_s: float | None = None  # since when credentials are refused
        self._admin: AdminClient | None = None
        common = {"client.id": "penstock", "log_level": 0, "reconnect.backoff.max.ms": 1000}
        self._properties = {**common, **properties, "error_cb": self._hear}
        ahead = fetching(FETCH_WAIT_MS, AHEAD_KB)
        group = {name: properties[name] for name in ("group.id",) if name in properties}
        self._consumer = self._make(Consumer, {**ahead, **self._properties, **reading(**group)})

    def _make(self, kind: Any, properties: dict[str, Any]) -> Any:
        try:
            return kind(properties)
        except KafkaException as error:
            found = engine_error(error)
            raise PenstockError(ErrorKind.BAD_PARAMETER, found.message) from None

    def _hear(self, error: KafkaError) -> None:
        if error.code() in REFUSALS and self._refused_s is None:
            self._refused_s = monotonic()
        if error.code() in REFUSALS or self._heard is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._heard = error

    def topic_id(self, topic: str) -> str:
        """The id of a topic, which another topic of the same name does not have. Raises TOPIC_NOT_FOUND, UNAVAILABLE,
        UNAUTHENTICATED and what the cluster refuses."""
        if self._admin is None:
            self._admin = self._make(AdminClient, self._properties)
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REACHED_S)
        try:
            return str(asked[topic].result(REACHED_S + 1).topic_id)
        except (KafkaException, TimeoutError) as error:
            self._admin.poll(0)  # calls back with errors
            raise self._failure(error, topic) from None

    def begin(self, place: At) -> int:
        """The start of a log; raises as `topic_id`."""
        try:
            begin, _ = self._consumer.get_watermark_offsets(TopicPartition(*place), REACHED_S, cached=False)
        except KafkaException as error:
            raise self._failure(error, place[0]) from None
        return int(begin)

    def read(self, place: At, start: int, end: int) -> Generator[Sequence[Record]]:
        """Yield the records with offsets from `start` on and below `end`; offsets rise and may skip.

        Raises OutOfRange if the log does not have `start`, or what follows, any more; LogEnds; UNAVAILABLE after `AWAY_S` without
        a record; UNAUTHENTICATED; and what the cluster refuses.
        """
        self._consumer.assign([TopicPartition(*place, start)])
        self._heard = self._refused_s = None
        what = f"{place[0]}, partition {place[1]}"
        moved_s, ended_s = monotonic(), None
        try:
            while start < end:
                first = self._consumer.poll(WAIT_S)
                found = [] if first is None else [first, *self._consumer.consume(RECORDS_MAX, 0)]
                failed = [one for one in found if one.error() is not None]
                if failed:
                    found = [one for one in found if one.error() is None]
                if found:
                    moved_s, ended_s = monotonic(), None
                    start = found[-1].offset() + 1
                    if start > end:
                        found = [one for one in found if one.offset() < end]
                    if found:
                        yield found
                ends = [at for one in failed if (at := log_end(one, what)) is not None]
                if ends and ends[-1] >= end:
                    return
                if ends:
                    ended_s = ended_s or monotonic()
                    start = max(start, ends[-1])
                if ended_s is not None and monotonic() - ended_s > END_S:
                    raise LogEnds(start)
                if not found:
                    self._check(moved_s, place)
        except KafkaException as error:
            raise self._failure(error, place[0]) from None
        finally:
            self._consumer.unassign()

    def _check(self, moved_s: float, place: At) -> None:
        """Raise why no records come, after a while."""
        now = monotonic()
        if self._refused_s is not None and now - self._refused_s > REFUSED_S:
            raise self._failure(None, place[0])
        if now - moved_s > AWAY_S:
            raise self._failure(None, place[0])

    def _failure(self, error: Exception | None, topic: str) -> PenstockError:
        """The error of a call, or of none; reported errors say why brokers are not reached."""
        found = error.args[0] if isinstance(error, KafkaException) else None
        heard = self._heard
        if heard is not None and (found is None or found.code() in UNREACHABLE):
            found = heard
        if found is None:
            return PenstockError(ErrorKind.UNAVAILABLE, f"{topic}: the Kafka cluster does not answer in time")
        if found.code() in REFUSALS:
            return PenstockError(
                ErrorKind.UNAUTHENTICATED, f"the Kafka cluster refuses the credentials: {found.str()}"
            )
        return engine_error(found, topic)

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()
        self._admin = None
