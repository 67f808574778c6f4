"""What one client has open, without I/O: frames in, frames out (`Output`), in the order of the commands.

Commands are executed at once if possible; if one has to wait, later ones wait with it. Work that may take
long (exclusive access, durable acknowledgements, replies) does not hold up the connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.runtime.tasks import Tasks
from penstock.wire.frames import FIELD, Frame, has_texts
from penstock.wire.pulsar_pb2 import BaseCommand

from . import answers
from .consumer import ConsumerHandler
from .peer import CLOSED, Credentials, Output, Peer, ProtocolViolation
from .producer import ProducerHandler
from .topic_lists import TopicListWatch

log = logging.getLogger(__name__)

Work = Coroutine[Any, Any, None]
Handler = Callable[["Session", Any, Frame], Work | None]

WAITING_FRAMES_MAX: Final = 1000  # behind a command that waits; then nothing more is read
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
# What comes with every message, and holds no text that is shown.
_TEXTLESS: Final = frozenset((BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW))
_WAITING: Final = "commands wait"


class Session(Peer):
    """A client with what it has open, and its commands that wait."""

    def __init__(
        self, context: ServerContext, output: Output, tasks: Tasks, handlers: dict[int, Handler]
    ) -> None:
        super().__init__(context, output, tasks)
        self.producers: dict[int, ProducerHandler] = {}
        self.disconnected: set[int] = (
            set()
        )  # producers the broker closed: entries sent to them are not an error
        self.waiting_producers: dict[int, asyncio.Task[None]] = {}  # for exclusive access
        self.consumers: dict[int, ConsumerHandler] = {}
        self.watches: dict[int, TopicListWatch] = {}
        self.waiting_bytes = 0  # received, and waiting for commands before it
        self._credentials: Credentials | None = None  # once the client is admitted
        self._handlers = handlers
        self._waiting: deque[Frame] = deque()
        self._busy = False

    def admit(self, who: Caller, method: str, *, refreshes: bool) -> None:
        """Admit a client, or go on under new credentials; `refreshes`: it can be asked for them."""
        self.who = who
        # The traffic of clients of a worker or of another process counts there.
        counted = self.of_worker or self.of_process
        self.allowance = None if counted else self.context.allowance(who.role, self.address)
        if self.holding is not None and who.role is not None:
            self.holding.belong(who.role)
        if self._credentials is None:
            self._credentials = Credentials(self, self.review)
        self._credentials.follow(who, method if refreshes else None)
        self.output.admitted()

    def review(self) -> None:
        """Permissions changed: close what may not go on; the client hears why when it comes back."""
        opened: list[ProducerHandler | ConsumerHandler | TopicListWatch] = [
            *self.producers.values(),
            *self.consumers.values(),
            *self.watches.values(),
        ]
        for one in opened:
            one.review()

    # -- commands

    def receive(self, frame: Frame) -> None:
        """Do what a command says, now or when those before it are done."""
        if self.closed:
            return
        if not self._busy:
            work = self._begin(frame)
            if work is not None:
                self._busy = True
                self.tasks.spawn(self._go_on(work), "commands of a client")
            return
        self._waiting.append(frame)
        self.waiting_bytes += _size(frame)
        if len(self._waiting) >= WAITING_FRAMES_MAX or self.waiting_bytes >= WAITING_BYTES_MAX:
            self.output.hold(_WAITING)

    def _begin(self, frame: Frame) -> Work | None:
        kind = frame.type
        handler = self._handlers.get(kind)
        try:
            if handler is None:
                raise ProtocolViolation(f"a command of type {kind} is not for a broker")
            if (self.who is None) != (kind == BaseCommand.CONNECT):
                raise ProtocolViolation(f"a command of type {kind} before CONNECT, or CONNECT again")
            command = getattr(frame.command, FIELD[kind])
            if kind not in _TEXTLESS and not has_texts(command):
                raise ProtocolViolation(f"a command of type {kind} holds a text that is no UTF-8")
            return handler(self, command, frame)
        except Exception as error:
            self._fail(error)
        return None

    def _fail(self, error: Exception) -> None:
        """Close the connection for what a command did."""
        if isinstance(error, ProtocolViolation | PenstockError):
            self.output.cut(str(error))
        else:
            log.error("a command failed", exc_info=error)
            self.output.cut("internal error")

    async def _go_on(self, work: Work | None) -> None:
        """Do what had to wait, and then what waits behind it."""
        try:
            while True:
                if work is not None:
                    try:
                        await work
                    except Exception as error:
                        self._fail(error)
                if not self._waiting or self.closed:
                    break
                frame = self._waiting.popleft()
                self.waiting_bytes -= _size(frame)
                work = self._begin(frame)
        finally:
            self._busy = False
            self._waiting.clear()
            self.waiting_bytes = 0
            self.output.release(_WAITING)
            self.output.count()

    async def answered(self, request_id: int, work: Work) -> None:
        """Do `work`, which answers by itself, or answer with the error."""
        try:
            await work
        except PenstockError as error:
            self.send(answers.error(request_id, error))
        except ProtocolViolation:
            raise
        except Exception:
            log.exception("a request failed")
            self.send(answers.error(request_id, PenstockError(ErrorKind.INTERNAL, "internal error")))

    # -- the end

    async def drain(self) -> None:
        """Complete when everything published so far is answered."""
        for producer in list(self.producers.values()):
            await producer.finish()

    async def close(self) -> None:
        """The client is gone: what it had goes to the others."""
        self.closed = True
        if self._credentials is not None:
            self._credentials.close()
        self._waiting.clear()
        for waiting in list(self.waiting_producers.values()):
            waiting.cancel()
        for watch in self.watches.values():
            watch.close()
        for consumer in list(self.consumers.values()):
            await consumer.close()
        for producer in list(self.producers.values()):
            await producer.close()
        self.watches.clear()
        self.consumers.clear()
        self.producers.clear()
        self.forget()

    def forget(self) -> None:
        """Drop what knows this object, at the very end: the memory of all is free at once, without the collector."""
        self.output = CLOSED
        self._credentials = None


def _size(frame: Frame) -> int:
    """What a frame that waits holds: a command may be as large as a message, also of a client not admitted yet."""
    return len(frame.entry) + frame.command.ByteSize()
