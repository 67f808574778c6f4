"""Figures of consumers."""

from typing import Any

import pytest

from penstock.engines.subscription.receiver import Receiver
from penstock.model.policy import ConsumerOptions
from penstock.protocols.admin.stats import _consumer


class Source:
    """A subscription of a log that another process may have."""

    def __init__(self, ledger: int, *, halted: bool) -> None:
        self.topic: Any = type("Topic", (), {"ledger": ledger})
        self.halted = halted


@pytest.mark.parametrize(
    ("halted", "shown"),
    [((True, True), True), ((True, False), None), ((False, False), None), ((), None)],
)
def test_a_consumer_that_gets_nothing_says_so(halted: tuple[bool, ...], shown: bool | None) -> None:
    consumer = Receiver("c", "s", ConsumerOptions())
    for ledger, each in enumerate(halted):
        consumer.attach(Source(ledger, halted=each))  # type: ignore[arg-type]
    assert _consumer(consumer).get("waitingForPartition") == shown
