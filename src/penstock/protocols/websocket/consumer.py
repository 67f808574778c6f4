"""The consumer endpoint: messages out, commands in, answers to those that ask for one. The reader endpoint: messages
out; every frame of the client is one credit more."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from penstock.broker.broker import Broker
from penstock.broker.consumer import Consumer
from penstock.broker.producer import Reply
from penstock.model.errors import WS_CLOSE_BASE, ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.protocols.backlog import Backlog
from penstock.protocols.proxied import Meter
from penstock.protocols.values import check_reply

from .commands import (
    Acknowledge,
    Answering,
    AskEndOfTopic,
    Broken,
    Command,
    Negative,
    Permit,
    Seek,
    Unsubscribe,
    parse_command,
    parse_plain,
)
from .delivery import Deliverer
from .frames import Answer, write
from .socket import TOO_BIG, Socket, documented

log = logging.getLogger(__name__)

ANSWERS_MAX: Final = 1000  # waiting to be written; then commands wait too
ANSWER_BYTES_MAX: Final = 1024 * 1024


class PendingAnswer(msgspec.Struct, gc=False):
    """An answer to write; `durable`: only once the acknowledgements so far are."""

    answer: Answer
    durable: bool
    size: int = 0
    arrived_ms: int = 0


class ConsumerHandler:
    """One consumer's socket. `multi` is v3."""

    def __init__(
        self, socket: Socket, consumer: Consumer, broker: Broker, meter: Meter, *, multi: bool
    ) -> None:
        self._socket = socket
        self._consumer = consumer
        self._broker = broker
        self._meter = meter
        self._deliverer = Deliverer(socket, consumer, meter, names_topic=multi)
        self._answers: Backlog[PendingAnswer] = Backlog(ANSWERS_MAX, ANSWER_BYTES_MAX)
        self._unsubscribed = False

    async def run(self) -> None:
        """Serve until the peer leaves or the socket is stopped; unwritten messages go to other consumers."""
        try:
            await self._socket.run(self._read(), self._deliver(), self._answer_all())
        finally:
            self._deliverer.give_back()
            await self._consumer.leave()

    async def _deliver(self) -> None:
        await self._deliverer.run()
        if not self._unsubscribed:  # else the client did it, and may have more to say
            _stop(self._socket, self._consumer)

    async def _read(self) -> None:
        socket = self._socket
        try:
            while frames := await socket.receive_all():
                await self._execute_all(frames)
                del frames  # they would stay while the next are waited for
        finally:
            self._deliverer.stop()
            self._answers.close()

    async def _execute_all(self, frames: list[bytes]) -> None:
        """Do what frames say, in their order; acknowledgements and replies without a context, which get no answer,
        together."""
        answers, known, allowance = self._answers, self._deliverer.known, self._socket.allowance
        acknowledged: list[MessageId] = []
        replies: list[Reply] = []
        for frame in frames:
            if allowance is not None and allowance.take(1, len(frame)):
                await self._acknowledge(acknowledged, replies)
                await allowance.spend(0, 0)
            plain = parse_plain(frame, known)
            if type(plain) is MessageId:
                acknowledged.append(plain)
                continue
            if type(plain) is Reply:
                replies.append(plain)
                continue
            command, context = parse_command(frame, known)
            if context is None and type(command) is Acknowledge and not command.cumulative:
                acknowledged.append(command.message_id)
                continue
            await self._acknowledge(acknowledged, replies)
            if context is None and isinstance(command, Broken):
                self._socket.stop(*documented(command.result))
                return
            await self._execute(command, context)
            if answers.full:
                await answers.room()
        await self._acknowledge(acknowledged, replies)

    async def _acknowledge(self, acknowledged: list[MessageId], replies: list[Reply]) -> None:
        """Deliver replies to waiting requesters, and acknowledge their requests and other messages; empties both lists."""
        left: Sequence[Reply] = ()
        if replies:
            left = self._consumer.reply_all(replies)
            late = set(map(id, left))
            done = [reply.request_id for reply in replies if id(reply) not in late]
            replies.clear()
            await self._consumer.acknowledge_all(done)
        if acknowledged:
            count = await self._consumer.acknowledge_all(acknowledged)
            acknowledged.clear()
            if count:
                self._meter.acks.add(count, 0)
        answering = [Answering(reply.request_id, reply.content, reply.is_error) for reply in left]
        if len(answering) == 1:
            await self._execute(answering[0], None)
        elif answering:  # an engine before a cluster sends each, and waits for its answer
            await asyncio.gather(*(self._execute(one, None) for one in answering))

    async def _execute(self, command: Command, context: str | None) -> None:
        """Execute a command; an error goes into its answer, if it has one, and changes nothing else."""
        answer = Answer()
        try:
            await self._do(command, answer)
            result = "ok"
        except PenstockError as error:
            result = error.message
            if context is None and error.kind is ErrorKind.TOO_LARGE:
                self._socket.stop(TOO_BIG, result)
            elif context is None and isinstance(command, Unsubscribe):
                # As Pulsar's: without an answer the client would believe that it succeeded.
                self._socket.stop(WS_CLOSE_BASE + error.kind.codes.ws_result, result)
        except Exception:
            log.exception("a command over a WebSocket failed")
            result = "Unknown error"
        if context is not None:
            answer.result, answer.context = result, context
        if context is not None or answer.end_of_topic is not UNSET:
            durable = result == "ok" and isinstance(command, Acknowledge | Answering | Seek)
            self._answers.add(PendingAnswer(answer, durable, len(context or "")))

    async def _do(self, command: Command, answer: Answer) -> None:
        consumer = self._consumer
        match command:
            case Acknowledge(message_id, cumulative):
                if cumulative:
                    await consumer.acknowledge_cumulative(message_id)
                else:
                    await consumer.acknowledge(message_id)
                self._meter.acks.add(1, 0)
            case Answering(message_id, content, is_error, version):
                topic = consumer.source_of(message_id).topic.name
                check_reply(self._broker.schemas, topic, content, version)
                outcome = await consumer.reply(message_id, content, is_error=is_error, schema_version=version)
                answer.reply = outcome.value
            case Negative(message_id):
                if not consumer.negative(message_id):
                    raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is not out")
            case Permit(count):
                consumer.flow(count)
            case Seek(message_id, timestamp):
                await consumer.seek(timestamp if message_id is None else message_id)
                self._deliverer.give_back()  # mostly of before: the core knows what of it still counts
            case Unsubscribe():
                self._unsubscribed = True
                try:
                    await consumer.unsubscribe()
                except PenstockError:
                    self._unsubscribed = False
                    raise
            case AskEndOfTopic():
                answer.end_of_topic = bool(consumer.attached) and consumer.drained and self._deliverer.empty
            case Broken(error):
                raise PenstockError(ErrorKind.BAD_JSON, error)

    async def _answer_all(self) -> None:
        while group := await self._answers.take():
            await self._answer(group)
            del group  # it would stay while the next is waited for

    async def _answer(self, group: list[PendingAnswer]) -> None:
        failed = None
        if any(pending.durable for pending in group):
            try:
                await self._consumer.flush()
            except PenstockError as error:
                failed = error.message
        for pending in group:
            if failed is not None and pending.durable:
                pending.answer.result = failed
        await self._socket.send_all([write(pending.answer).encode() for pending in group])


class ReaderHandler:
    """One reader's socket."""

    def __init__(self, socket: Socket, consumer: Consumer, meter: Meter) -> None:
        self._socket = socket
        self._consumer = consumer
        self._deliverer = Deliverer(socket, consumer, meter, names_topic=False)
        self._credited = 0

    async def run(self) -> None:
        """Serve until the peer leaves or the socket is stopped."""
        try:
            await self._socket.run(self._read(), self._deliver())
        finally:
            await self._consumer.leave()

    async def _deliver(self) -> None:
        await self._deliverer.run()
        _stop(self._socket, self._consumer)

    async def _read(self) -> None:
        socket = self._socket
        try:
            while frames := await socket.receive_all():
                if not await self._execute_all(frames):
                    socket.stop(*documented(3))
                    return
                del frames  # they would stay while the next are waited for
        finally:
            self._deliverer.stop()

    async def _execute_all(self, frames: list[bytes]) -> bool:
        """Execute frames up to one that is not JSON; returns whether all are JSON."""
        allowance = self._socket.allowance
        for frame in frames:
            if allowance is not None:
                await allowance.spend(1, len(frame))
            if not await self._execute(frame):
                return False
        return True

    async def _execute(self, frame: bytes) -> bool:
        """Do what a frame says; False for one that is not JSON."""
        command, context = parse_command(frame)
        if isinstance(command, AskEndOfTopic):
            ended = self._consumer.drained and self._deliverer.empty
            answer = Answer(end_of_topic=ended)
            if context is not None:
                answer.result, answer.context = "ok", context
            await self._socket.send(write(answer))
        elif isinstance(command, Broken) and not _is_json(frame):
            return False
        else:
            self._credit()
            if context is not None:
                await self._socket.send(write(Answer(result="ok", context=context)))
        return True

    def _credit(self) -> None:
        """One message more, for one that was delivered: more acknowledgements than messages give nothing."""
        if self._credited < self._consumer.delivered:
            self._credited += 1
            self._consumer.flow(1)


def _stop(socket: Socket, consumer: Consumer) -> None:
    """The consumer is closed: end its socket for the same reason."""
    reason = consumer.close_reason
    socket.stop(*documented(8 if reason is None else reason.kind.codes.ws_result))


def _is_json(text: bytes) -> bool:
    """What a reader's client writes is not looked at any further (Pulsar takes anything that is JSON)."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
