"""The reader endpoint: messages out; every frame of the client is one credit more (Pulsar's WebSocket API)."""

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.consumer import Consumer
from penstock.protocols.proxied import Meter

from .commands import AskEndOfTopic, Broken, parse_command
from .delivery import Deliverer
from .frames import Answer, write
from .socket import Socket, documented


class ReaderHandler:
    """One reader's socket."""

    def __init__(self, socket: Socket, consumer: Consumer, broker: Broker, meter: Meter) -> None:
        self._socket = socket
        self._consumer = consumer
        self._broker = broker
        self._deliverer = Deliverer(socket, consumer, broker.encoder, meter, names_topic=False)
        self._credited = 0

    async def run(self) -> None:
        """Talk until the peer leaves or the socket is stopped."""
        try:
            await self._socket.talk(self._read(), self._deliver())
        finally:
            await self._broker.leave(self._consumer)

    async def _deliver(self) -> None:
        await self._deliverer.run()
        reason = self._consumer.close_reason
        self._socket.stop(*documented(8 if reason is None else reason.kind.codes.ws_result))

    async def _read(self) -> None:
        socket = self._socket
        try:
            while not socket.left:
                text = socket.heard(await socket.receive())
                if text is None:
                    continue
                if socket.allowance is not None:
                    await socket.allowance.spend(1, len(text))
                command, context = parse_command(text)
                if isinstance(command, AskEndOfTopic):
                    ended = self._consumer.drained and self._deliverer.empty
                    answer = Answer(end_of_topic=ended)
                    if context is not None:
                        answer.result, answer.context = "ok", context
                    await socket.send(write(answer))
                elif isinstance(command, Broken) and not _is_json(text):
                    socket.stop(*documented(3))
                    return
                else:
                    self._credit()
                    if context is not None:
                        await socket.send(write(Answer(result="ok", context=context)))
        finally:
            self._deliverer.stop()

    def _credit(self) -> None:
        """One message more, for one that was delivered: more acknowledgements than messages give nothing."""
        if self._credited < self._consumer.delivered:
            self._credited += 1
            self._consumer.flow(1)


def _is_json(text: str) -> bool:
    """What a reader's client writes is not looked at any further (Pulsar takes anything that is JSON)."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
