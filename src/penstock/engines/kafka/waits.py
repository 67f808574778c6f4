"""Says in the log which consumers get nothing, as their group gives this process none of their partitions.

A topic with fewer partitions than processes that consume it leaves some without. What is at rest looks the same as a topic without
messages, so it is said once of each consumer.
"""

import logging
from collections.abc import Iterable
from typing import Final

from penstock.engines.subscription.receiver import Receiver

from .group import Group

log = logging.getLogger(__name__)

SAID_S: Final = 5.0  # without a partition: a rebalance takes partitions away before it gives them


class Waits:
    """Consumers without a partition."""

    def __init__(self) -> None:
        self._since: dict[Receiver, float] = {}
        self._said: set[Receiver] = set()

    def look(self, groups: Iterable[Group], now: float) -> None:
        """Called each second, with the groups of this process and the loop's time."""
        found = {
            consumer
            for group in groups
            for source in group.sources.values()
            if source.waiting
            for consumer in source.consumers
            if consumer.waiting
        }
        self._since = {consumer: self._since.get(consumer, now) for consumer in found}
        self._said = {consumer for consumer in self._said if not consumer.closed}
        for consumer, since in self._since.items():
            if now - since >= SAID_S and consumer not in self._said:
                self._said.add(consumer)
                _say(consumer)


def _say(consumer: Receiver) -> None:
    topics = sorted({str(source.topic.name.base) for source in consumer.sources})
    extra = {
        "consumer": consumer.name,
        "subscription": consumer.subscription,
        "client": consumer.options.client.address,
        "topics": topics,
    }
    log.info("a consumer gets nothing: its group gives this process no partition of its topics", extra=extra)
