"""librdkafka's clients of a process, made in one place: their credentials, what they report, and when they are made again.

A password is given to clients that are there. librdkafka cannot be given certificates: `generation` rises, and each owner
of a client makes another one when nothing of it is in the way.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from threading import RLock
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

from .credentials import Credentials
from .errors import engine_error, error_of
from .failures import ClientErrors
from .threads import in_thread

log = logging.getLogger(__name__)

T = TypeVar("T")
ErrorCallback = Callable[[KafkaError], None]

POLL_S: Final = 0.5  # between two polls of clients that no thread polls
FILES_CHECK_S: Final = 1.0  # between two looks at files
# No broker answered, whatever the reason.
UNREACHABLE: Final = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
    )
)
REFUSAL_CHECK_S: Final = 1.0  # between two looks at whether a call that waits should be given up
REFUSED_S: Final = 3.0  # that credentials are refused before a call that waits is given up


class _Producer(Producer):  # type: ignore[misc] # confluent_kafka has no types; so for the others
    """Weak references need a class of Python's; so for the others."""


class _Consumer(Consumer):  # type: ignore[misc]
    pass


class _Admin(AdminClient):  # type: ignore[misc]
    pass


Client = _Producer | _Consumer | _Admin


class Clients:
    """Makes clients, on any thread. Raises BAD_PARAMETER for settings that cannot be used."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.credentials = Credentials(settings)
        self.errors = ClientErrors()
        self.generation = 0
        self.on_renewal: list[Callable[[], None]] = []  # called on the loop once `generation` has risen
        self._lock = RLock()  # what is polled may have a client made
        self._alive: WeakSet[Client] = WeakSet()
        self._polled: WeakSet[Client] = WeakSet()

    # -- making them. `kind` is a name for logs and metrics; `on_error` is also called with each error, by the thread that polls.

    def producer(self, kind: str, own: Mapping[str, Any]) -> Producer:
        """A producer; raises UNAVAILABLE if the credentials cannot be read, as for the others."""
        return self._make(_Producer, self._properties(kind, own))

    def consumer(self, kind: str, own: Mapping[str, Any], on_error: ErrorCallback | None = None) -> Consumer:
        """A consumer; `own` names its group."""
        return self._make(_Consumer, self._properties(kind, own, on_error))

    def admin(self, kind: str, on_error: ErrorCallback | None = None) -> AdminClient:
        """A client for administration; it is polled here."""
        return self.poll_in_background(self._make(_Admin, self._properties(kind, {}, on_error)))

    def _properties(
        self, kind: str, own: Mapping[str, Any], on_error: ErrorCallback | None = None
    ) -> dict[str, Any]:
        def error_cb(error: KafkaError) -> None:
            self.errors.report(kind, error)
            if on_error is not None:
                on_error(error)

        return {**self.credentials.properties(), **own, "error_cb": error_cb}

    def _make(self, kind: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Any:
        try:
            made = kind(properties)
        except KafkaException as error:  # such as a file of certificates that cannot be read
            raise engine_error(error) from None
        with self._lock:
            self._alive.add(made)
        if properties.get("sasl.password", "") != self.credentials.password and self.credentials.username:
            self._set_password(made)  # it changed meanwhile
        return made

    def _set_password(self, client: Any) -> None:
        try:
            client.set_sasl_credentials(self.credentials.username, self.credentials.password)
        except (KafkaException, RuntimeError):
            log.debug("a client was closed before it got the new password", exc_info=True)

    def poll_in_background(self, client: Any) -> Any:
        """Have a client polled on the loop that nothing else polls, so that it reports its errors."""
        with self._lock:
            self._polled.add(client)
        return client

    def stop_polling(self, client: Any) -> None:
        """Poll a client no more; called before it is closed."""
        with self._lock:
            self._polled.discard(client)

    # -- while they are used

    async def watch(self) -> None:
        """Poll clients, and look for other credentials; ends when cancelled."""
        checked_s, generation = monotonic(), self.generation
        while True:
            await asyncio.sleep(POLL_S)
            self.poll()
            if monotonic() - checked_s >= FILES_CHECK_S:
                await in_thread(self.refresh_credentials)
                checked_s = monotonic()
            if generation != self.generation:
                generation = self.generation
                for renew in self.on_renewal:
                    renew()

    def poll(self) -> None:
        """Have errors reported; on the loop."""
        with self._lock:  # no client is closed meanwhile
            for client in list(self._polled):
                try:
                    client.poll(0)
                except Exception:  # of a callback: the others are polled, and the next time this one
                    log.exception("polling a client of Kafka failed")

    def refresh_credentials(self) -> None:
        """Use the credentials that are there now; blocks."""
        if self.credentials.password_changed():
            with self._lock:
                alive = list(self._alive)
            for client in alive:
                self._set_password(client)
            log.info("Kafka is told the new password", extra={"clients": len(alive)})
        if self.credentials.certificates_changed():
            self.generation += 1
            log.info("Kafka's clients are made again with the new certificates")

    async def wait_unless_refused(self, waiting: "asyncio.Future[T]") -> T:
        """Wait for an answer of the cluster; raises UNAVAILABLE once the cluster refuses the credentials of this server."""
        waited_s = 0.0
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=REFUSAL_CHECK_S)
                if done:
                    return self._result(waiting)
                waited_s += REFUSAL_CHECK_S
                refusal = self.errors.refusal(REFUSED_S)
                if refusal is not None and waited_s > REFUSED_S:
                    raise engine_error(refusal)
        finally:
            waiting.add_done_callback(_forget)

    def _result(self, answer: "asyncio.Future[T]") -> T:
        """An answer; where brokers were not reached, and the reason is that they refuse this server, that is raised."""
        refusal = self.errors.refusal()
        if refusal is None:
            return answer.result()
        try:
            return answer.result()
        except KafkaException as error:
            found = error_of(error)
            if found is None or found.code() not in UNREACHABLE:
                raise
            raise engine_error(refusal) from None
        except PenstockError as error:
            if error.kind is not ErrorKind.UNAVAILABLE:
                raise
            raise engine_error(refusal) from None

    def close(self) -> None:
        """Let go of what credentials need; blocks for up to half a second."""
        self.credentials.close()


def _forget(waiting: "asyncio.Future[Any]") -> None:
    if not waiting.cancelled():
        waiting.exception()
