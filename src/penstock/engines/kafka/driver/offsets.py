"""Where partitions begin and end, asked by a consumer that reads nothing: the administrator's request for it corrupts memory in
librdkafka 2.11 to 2.16 where a topic is deleted meanwhile."""

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .clients import UNREACHABLE, Clients, CredentialsInUse
from .errors import error_of
from .record import At

# What Kafka understands in the place of a time (ms).
BEGIN: Final = -2
END: Final = -1


class Offsets:
    """Each call waits, so that it is made in a thread. `committed`: what is in open transactions, and behind them, does not count."""

    def __init__(self, clients: Clients, timeout_s: float, *, committed: bool) -> None:
        self._clients = clients
        self._credentials = CredentialsInUse(clients)
        self._properties: dict[str, Any] = {
            "group.id": "penstock",  # required, and never joined
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        self._timeout_s = timeout_s
        self._making = Lock()
        self._consumer: Consumer | None = None

    def at(self, places: Sequence[At], time_ms: int) -> dict[At, int]:
        """The offsets of the first records of a time or after it, -1 where there is none; or of the begin, or the end. Raises
        KafkaException."""
        with self._making:
            if self._credentials.replaced():
                self._consumer = None  # it ends once no call uses it
            if self._consumer is None:
                self._consumer = self._clients.consumer("offsets", self._properties)
            consumer = self._consumer
        try:
            return self._ask(consumer, places, time_ms)
        except KafkaException as error:
            # So that the consumer reports its errors. Not after each lookup: the calls of a consumer wait for one another.
            consumer.poll(0)
            found = error_of(error)
            if found is not None and found.code() in UNREACHABLE:
                self._leave(consumer)
            raise

    def bounds(self, places: Sequence[At]) -> dict[At, tuple[int, int]]:
        """Where partitions begin and end. One question after the other: two at once would both ask for unknown leaders. Raises
        KafkaException."""
        begins, ends = self.at(places, BEGIN), self.at(places, END)
        return {place: (begins[place], end) for place, end in ends.items()}

    def _leave(self, consumer: Consumer) -> None:
        """Use another consumer from now on: librdkafka 2.16 may have lost all brokers (`KafkaAdmin.check_reachable`)."""
        with self._making:
            if consumer is self._consumer:
                self._consumer = None  # it ends once no call uses it

    def _ask(self, consumer: Consumer, places: Sequence[At], time_ms: int) -> dict[At, int]:
        wanted = [TopicPartition(topic, partition, time_ms) for topic, partition in places]
        try:
            found = consumer.offsets_for_times(wanted, timeout=self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # not there, or not heard of yet
                for topic in {topic for topic, _ in places}:
                    # What librdkafka knows may be minutes old.
                    consumer.list_topics(topic, timeout=self._timeout_s)
                raise KafkaException(KafkaError(KafkaError._NOENT)) from None
            raise
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
            if one.offset < 0 and time_ms < 0:  # nobody was asked
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return {(one.topic, one.partition): one.offset for one in found}

    def close(self) -> None:
        """End the consumer's threads, and wait for them."""
        with self._making:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
