"""Replies on their way between processes, whatever carries them: those of this one's consumers out, those to its requests in."""

from typing import Protocol

from penstock.broker.delivery import Outcome
from penstock.broker.entry_format import EntryFormat
from penstock.broker.producer import Reply
from penstock.model.entry import Entry
from penstock.model.message import OutMessage, request_timeout_ms
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock

from .remote_requests import RemoteRequests, address_of, reply_message
from .requests import check_size


class ReplyTransport(Protocol):
    """What replies go by, from and to addresses of `ReplyAddresses`. What arrives is given to `RemoteRequests`."""

    async def listen(self, reply_to: str) -> None:
        """Have what is sent to one of this process's addresses arrive, from before this returns; harmless when repeated.
        Raises what the cluster says."""

    async def send(self, reply_to: str, message: OutMessage) -> None:
        """Send a message to another process's address. Raises what the cluster says."""

    async def close(self) -> None:
        """Listen no more."""


class Replies:
    """Both directions, for a whole engine."""

    def __init__(
        self, transport: ReplyTransport, clock: Clock, encoder: EntryFormat, requests: RemoteRequests
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._encoder = encoder
        self.requests = requests

    async def listen(self, namespace: NamespaceName) -> None:
        """Have replies to requests of a namespace arrive, before the first of them is published. Raises what the cluster
        says."""
        await self._transport.listen(self.requests.reply_to(namespace))

    async def reply(self, entry: Entry, topic: TopicName, reply: Reply) -> Outcome:
        """Send the reply to a message of an entry of `topic`. Raises TOO_LARGE, and what the cluster says."""
        check_size(reply)
        messages = self._encoder.decode(entry)
        request = messages[min(max(0, reply.request_id.batch_index), len(messages) - 1)]
        address = address_of(request, topic, self.requests.addresses)
        if address is None:
            return Outcome.NOT_A_REQUEST
        if request.publish_time + (request_timeout_ms(request.properties) or 0) < self._clock.now_ms():
            self.requests.late += 1
            return Outcome.NOBODY_WAITS
        if self.requests.owns(address.correlation_id):
            delivered = self.requests.answer(address.correlation_id, reply)
            return Outcome.DELIVERED if delivered else Outcome.NOBODY_WAITS
        await self._transport.send(address.reply_to, reply_message(reply, address.correlation_id))
        return Outcome.DELIVERED

    async def close(self) -> None:
        """Listen no more."""
        await self._transport.close()
