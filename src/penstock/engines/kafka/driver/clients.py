"""All librdkafka clients of a process: creates them, renews their credentials, and collects their errors.

After a password or a certificate changed, `generation` rises, and each owner of a client creates a new one as soon as the old
one has nothing in flight. librdkafka cannot replace certificates. It can replace a password (`set_sasl_credentials`), but
confluent-kafka runs the calls of a consumer one after the other: setting it would wait for a call that the brokers refuse.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

from .credentials import Credentials
from .errors import ClientErrors, engine_error, error_of
from .threads import in_thread

log = logging.getLogger(__name__)

T = TypeVar("T")
ErrorCallback = Callable[[KafkaError], None]

POLL_S: Final = 0.5  # between polls of clients that no other thread polls
FILES_CHECK_S: Final = 1.0  # between checks of the files
# No broker answered, for whatever reason.
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
REFUSAL_CHECK_S: Final = 1.0  # between checks whether to give up a waiting call
REFUSED_S: Final = 3.0  # how long credentials are refused before a waiting call is given up


class _Producer(Producer):  # type: ignore[misc] # confluent_kafka has no types; so for the others
    """A Python class, which weak references need; so for the others."""


class _Consumer(Consumer):  # type: ignore[misc]
    pass


class _Admin(AdminClient):  # type: ignore[misc]
    pass


Client = _Producer | _Consumer | _Admin


class Clients:
    """Creates clients, on any thread. Raises BAD_PARAMETER for settings that cannot be used."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.credentials = Credentials(settings)
        self.errors = ClientErrors()
        self.generation = 0
        self.on_renewal: list[Callable[[], None]] = []  # called on the loop once `generation` has risen
        self._lock = Lock()  # of the set
        self._polled: WeakSet[Client] = WeakSet()

    # -- creation. `kind` is a name for logs and metrics; `on_error` is called with each error, on the thread that polls.

    def producer(self, kind: str, own: Mapping[str, Any]) -> Producer:
        """A producer; raises UNAVAILABLE if the credentials cannot be read, as for the others."""
        return self._make(_Producer, self._properties(kind, own))

    def consumer(self, kind: str, own: Mapping[str, Any], on_error: ErrorCallback | None = None) -> Consumer:
        """A consumer; `own` names its group."""
        return self._make(_Consumer, self._properties(kind, own, on_error))

    def admin(self, kind: str, on_error: ErrorCallback | None = None) -> AdminClient:
        """An admin client; it is polled here."""
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
            return kind(properties)
        except KafkaException as error:  # such as an unreadable certificate file
            raise engine_error(error) from None

    def poll_in_background(self, client: Any) -> Any:
        """Poll a producer or an admin client on the loop that nothing else polls, so that it reports its errors. Not a consumer:
        its poll waits for its other calls."""
        with self._lock:
            self._polled.add(client)
        return client

    # -- use

    async def watch(self) -> None:
        """Poll clients, and check the files of credentials; runs until cancelled."""
        checked_s, credentials = monotonic(), CredentialsInUse(self)
        while True:
            await asyncio.sleep(POLL_S)
            self.poll()
            if monotonic() - checked_s >= FILES_CHECK_S:
                await in_thread(self.refresh_credentials)
                checked_s = monotonic()
            if credentials.replaced():
                for renew in self.on_renewal:
                    renew()

    def poll(self) -> None:
        """Poll clients, so that they report errors; on the loop."""
        with self._lock:
            polled = list(self._polled)
        for client in polled:  # without the lock: a callback may create a client
            try:
                client.poll(0)
            except Exception:  # raised by a callback: go on with the other clients
                log.exception("polling a client of Kafka failed")

    def refresh_credentials(self) -> None:
        """Read changed credentials and have clients recreated; blocks."""
        changed = [self.credentials.password_changed(), self.credentials.certificates_changed()]
        if any(changed):
            self.generation += 1
            log.info("Kafka clients are being recreated with the new credentials")

    async def wait_unless_refused(self, waiting: "asyncio.Future[T]") -> T:
        """Wait for an answer of the cluster; raises UNAVAILABLE once the cluster refuses the credentials of this server."""
        waited_s = 0.0
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=REFUSAL_CHECK_S)
                if done:
                    return self._result(waiting)
                waited_s += REFUSAL_CHECK_S
                refused = self.refused()
                if refused is not None and waited_s > REFUSED_S:
                    raise refused
        finally:
            waiting.add_done_callback(_forget)

    def refused(self) -> PenstockError | None:
        """Why the cluster refuses the credentials of this server, if it has done so for REFUSED_S."""
        refusal = self.errors.refusal(REFUSED_S)
        return None if refusal is None else engine_error(refusal)

    def _result(self, answer: "asyncio.Future[T]") -> T:
        """The answer. If no broker was reached because they refuse this server, raises the refusal."""
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
        """Release the credentials' resources; blocks for up to half a second."""
        self.credentials.close()


class CredentialsInUse:
    """The credentials that a client was created with, for its owner, who creates another one after a change."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._generation = clients.generation

    @property
    def outdated(self) -> bool:
        """Whether the credentials have changed since they were taken."""
        return self._generation != self._clients.generation

    def replaced(self) -> bool:
        """Take the current credentials; returns whether they have changed."""
        before, self._generation = self._generation, self._clients.generation
        return before != self._generation


def _forget(waiting: "asyncio.Future[Any]") -> None:
    if not waiting.cancelled():
        waiting.exception()
