"""A consumer of a worker."""

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.client.errors import PulsarException
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.errors import engine_error
from penstock.engines.shared.requests import check_size


class WorkerConsumer(Consumer):
    """`broker.Consumer`. A reply goes to the owner with the acknowledgement of its request (PIP-371)."""

    async def answer(self, reply: Reply) -> Outcome:
        check_size(reply)
        part = self._part_of(reply.request_id)
        part.request(reply.request_id)  # raises unless it is out
        try:
            outcome = await part.link.reply(
                reply.request_id,
                reply.content,
                is_error=reply.is_error,
                schema_version=reply.schema_version,
            )
        except PulsarException as error:
            raise engine_error(error) from None
        return Outcome(outcome)
