"""One connection's talk, without I/O: frames in, frames out (`Output`), in the order of the commands.

What can be done at once is done at once; where a command has to wait, those behind it wait with it. LongPolls that
may take long (for exclusive access, for durable acknowledgements, for replies) do not hold up the connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import UNKNOWN_CLIENT
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.holding import Holding
from penstock.protocols.rates import Allowance
from penstock.runtime.tasks import Tasks
from penstock.wire.frames import FIELD, Frame, has_texts
from penstock.wire.pulsar_pb2 import BaseCommand, FeatureFlags

from . import answers
from .consumer import ConsumerHandler
from .output import CLOSED, Output, ProtocolViolation, send
from .producer import ProducerHandler
from .refresh import Refresh
from .topic_lists import TopicListWatch

log = logging.getLogger(__name__)

Work = Coroutine[Any, Any, None]
Handler = Callable[["Session", Any, Frame], Work | None]

WAITING_FRAMES_MAX: Final = 1000  # behind a command that waits; then nothing more is read
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
# What comes with every message, and holds no text that is shown.
_TEXTLESS: Final = frozenset((BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW))
_PENDING: Final = "too much waits for the store"


class Session:
    """What one client has open."""

    def __init__(
        self, context: ServerContext, output: Output, tasks: Tasks, handlers: dict[int, Handler]
    ) -> None:
        self.context = context
        self.output = output
        self.tasks = tasks
        self.who: Caller | None = None
        self.peer_role: str | None = None  # what the client's certificate names
        self.address = ""  # where the client is
        self.holding: Holding | None = None  # what the server holds for it
        self.peer_address = ""  # and its port
        self.client = UNKNOWN_CLIENT  # what CONNECT says of it
        self.allowance: Allowance | None = None  # how fast it may go
        self.pending_bytes = 0  # sent by its producers, and not stored yet
        self._refresh = Refresh(self)
        self.features = FeatureFlags()
        self.producers: dict[int, ProducerHandler] = {}
        self.closed_producers: set[int] = set()  # by others: what was sent to them meanwhile is no mistake
        self.waiting_producers: dict[int, asyncio.Task[None]] = {}  # for exclusive access
        self.consumers: dict[int, ConsumerHandler] = {}
        self.watches: dict[int, TopicListWatch] = {}
        self.closed = False
        self._handlers = handlers
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._busy = False

    @property
    def waiting_bytes(self) -> int:
        """What was received and waits for commands before it."""
        return self._waiting_bytes

    @property
    def broker(self) -> Broker:
        return self.context.broker

    @property
    def admitted(self) -> Caller:
        """Who it is; commands come here only after CONNECT."""
        assert self.who is not None
        return self.who

    # -- who

    def admit(self, who: Caller, method: str, *, refreshes: bool) -> None:
        """Let a client in, or go on under new credentials; `refreshes`: it can be asked for them."""
        self.who = who
        self.allowance = self.context.allowance(who.role, self.address)
        if self.holding is not None and who.role is not None:
            self.holding.belong(who.role)
        self._refresh.follow(who, method if refreshes else None)
        self.output.admitted()

    def review(self) -> None:
        """Permissions changed: close what may not go on; the client hears why when it comes back."""
        for producer in list(self.producers.values()):
            producer.review()
        for consumer in list(self.consumers.values()):
            consumer.review()
        for watch in list(self.watches.values()):
            watch.review()

    # -- what its producers hold

    def pend(self, size: int) -> None:
        """Count what was sent and waits for the store; nothing more is read beyond the bound."""
        self.pending_bytes += size
        if self.pending_bytes >= self.context.limits.max_connection_bytes_in_flight:
            self.output.hold(_PENDING)

    def stored(self, size: int) -> None:
        """It waits no more."""
        self.pending_bytes -= size
        self.output.count()
        if self.pending_bytes < self.context.limits.max_connection_bytes_in_flight // 2:
            self.output.release(_PENDING)

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
        self._waiting_bytes += _size(frame)
        if len(self._waiting) >= WAITING_FRAMES_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            self.output.hold("commands wait")

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
        except ProtocolViolation as reason:
            self.output.cut(str(reason))
        except PenstockError as error:
            self.output.cut(error.message)
        except Exception:
            log.exception("a command failed")
            self.output.cut("internal error")
        return None

    async def _go_on(self, work: Work | None) -> None:
        """Do what had to wait, and then what waits behind it."""
        try:
            while True:
                if work is not None:
                    try:
                        await work
                    except (ProtocolViolation, PenstockError) as reason:
                        self.output.cut(str(reason))
                    except Exception:
                        log.exception("a command failed")
                        self.output.cut("internal error")
                if not self._waiting or self.closed:
                    break
                frame = self._waiting.popleft()
                self._waiting_bytes -= _size(frame)
                work = self._begin(frame)
        finally:
            self._busy = False
            self._waiting.clear()
            self._waiting_bytes = 0
            self.output.release("commands wait")
            self.output.count()

    async def answered(self, request_id: int, work: Work) -> None:
        """Do `work`, which answers by itself, or answer with the error."""
        try:
            await work
        except PenstockError as error:
            send(self.output, answers.error(request_id, error))
        except ProtocolViolation:
            raise
        except Exception:
            log.exception("a request failed")
            internal = PenstockError(ErrorKind.INTERNAL, "internal error")
            send(self.output, answers.error(request_id, internal))

    # -- the end

    async def drain(self) -> None:
        """Complete when everything published so far is answered."""
        for producer in list(self.producers.values()):
            await producer.finish()

    async def close(self) -> None:
        """The client is gone: what it had goes to the others."""
        self.closed = True
        self._refresh.close()
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
        self.output = CLOSED  # the connection goes at once, without the collector


def _size(frame: Frame) -> int:
    """What a frame that waits holds: a command may be as large as a message, also from who is not admitted yet."""
    return len(frame.entry) + frame.command.ByteSize()
