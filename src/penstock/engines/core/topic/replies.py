"""Replies to requests of the same process (PIP-371): handed over to the waits, found by the message's id or by its producer and sequence id.

A reply may come before the requester's own receipt: until the message's id is known, a wait is found by producer and sequence id.
"""

from collections.abc import Callable, Sequence

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.engines.shared.requests import REPLY_BYTES_MAX, Requests, check_size, id_key
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.receiver import Receiver
from penstock.model.entry import Entry
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message
from penstock.model.message_id import MessageId


class Replies:
    """Gives the replies of consumers to the requests that wait for them."""

    def __init__(self, requests: Requests, decode: Callable[[Entry], list[Message]]) -> None:
        self._requests = requests
        self._decode = decode

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """Give a reply to the clients that wait for it. The caller acknowledges the message afterwards.

        `consumer` None lets any consumer of the subscription have received it. Raises MESSAGE_NOT_FOUND when
        the message is not out with it, TOO_LARGE.
        """
        check_size(reply)
        message_id, requests = reply.request_id, self._requests
        source.answers.check_out(message_id, consumer)
        if requests.answer(id_key(message_id), reply):
            return Outcome.DELIVERED
        message = await self._message(source, message_id)
        names = (str(source.topic.name.base), message.producer_name, message.sequence_id)
        # Its id may be known by now; by its names it may be mistaken for another producer's.
        if requests.answer(id_key(message_id), reply) or requests.answer(names, reply):
            return Outcome.DELIVERED
        if REQUEST_TIMEOUT_PROPERTY not in message.properties:
            return Outcome.NOT_A_REQUEST
        requests.late += 1
        return Outcome.NOBODY_WAITS

    def reply_all(
        self, source: Subscription, consumer: Receiver | None, replies: Sequence[Reply]
    ) -> list[Reply]:
        """`reply` many at once, if the ids of the requests are known by now, as they mostly are. Returns the others, unchanged."""
        requests, has_out = self._requests, source.answers.has_out
        waits = requests.waits
        left: list[Reply] = []
        for reply in replies:
            message_id = reply.request_id
            entry, index = message_id.entry, message_id.batch_index
            key = (message_id.ledger, entry, index if index > 0 else 0)
            request = waits.get(key)
            if request is None or len(reply.content) > REPLY_BYTES_MAX or not has_out(entry, index, consumer):
                left.append(reply)
            elif request.following is None:
                requests.answered += request.end(reply)
            else:
                requests.answer(key, reply)
        return left

    async def _message(self, source: Subscription, message_id: MessageId) -> Message:
        entry = await source.topic.entry(message_id.entry)
        messages = self._decode(entry)
        return messages[min(max(0, message_id.batch_index), len(messages) - 1)]
