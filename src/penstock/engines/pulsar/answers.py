"""`broker.Answers` of a subscription whose log is of many ledgers: consumers answer instead."""

from collections.abc import Mapping

from penstock.broker.delivery import Receiver
from penstock.engines.shared.unsupported import refuse
from penstock.model.message_id import MessageId


class NoAnswers:
    """`broker.Answers` go by entry alone; ids of many ledgers go through consumers."""

    def acknowledge(self, entry_id: int, index: int) -> bool:
        return False

    def acknowledge_masks(self, masks: Mapping[int, int]) -> list[int]:
        return list(masks)

    async def acknowledge_late(self, message_id: MessageId) -> None:
        raise refuse("acknowledgements without a consumer")

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: Receiver) -> bool:
        return False

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: Receiver) -> None:
        raise refuse("acknowledgements without a consumer")

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        raise refuse("acknowledgements without a consumer")

    def negative(self, entry_id: int, index: int, delay_ms: int, by: Receiver | None = None) -> bool:
        return False

    def redeliver_all(self, consumer: Receiver) -> None:
        raise refuse("redelivery without a consumer")
