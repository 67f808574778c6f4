"""Replies of this process's consumers to requests of its own clients (PIP-371). Those between processes are to come."""

from penstock.broker.delivery import Outcome
from penstock.broker.entry_format import EntryFormat
from penstock.broker.producer import Reply
from penstock.engines.shared.remote_requests import RemoteRequests
from penstock.engines.shared.replies import Replies
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock


class KafkaReplies:
    """Gives the replies of consumers to who waits for them."""

    def __init__(self, clock: Clock, encoder: EntryFormat, requests: RemoteRequests) -> None:
        self._replies = Replies(_WithinProcess(), clock, encoder, requests)

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """As `subscription.Host.reply`; raises NOT_SUPPORTED for a request of another process's client."""
        message_id = reply.request_id
        if not source.answers.has_out(message_id.entry, message_id.batch_index, consumer):
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"message {message_id} is not out with this consumer: it cannot reply",
            )
        entry = await source.topic.entry(message_id.entry)
        return await self._replies.reply(entry, source.topic.name, reply)


class _WithinProcess:
    """`shared.ReplyTransport` of one process."""

    async def listen(self, topic: TopicName) -> None:
        """Replies are given at once."""

    async def send(self, topic: TopicName, message: OutMessage) -> None:
        raise PenstockError(
            ErrorKind.NOT_SUPPORTED, "the request was made at another process: its reply cannot get there yet"
        )

    async def close(self) -> None:
        """Nothing is open."""
