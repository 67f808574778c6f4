"""The receiver of a consumer's entries."""

from __future__ import annotations

from typing import Protocol

from penstock.client.errors import PulsarException

from .arrived import Arrived


class Sink(Protocol):
    """The receiver of a consumer's entries. Nothing here may wait."""

    def arrived(self, entries: list[Arrived]) -> None:
        """Entries came, in order."""

    def reset(self) -> None:
        """Outstanding messages are void: they are redelivered, as far as the subscription still has them."""

    def active(self, active: bool) -> None:  # the broker's word
        """Whether the consumer is the one that gets everything (Failover)."""

    def end_reached(self) -> None:
        """The topic is terminated, and everything in it was acknowledged."""

    def ended(self, error: PulsarException) -> None:
        """Nothing will come any more."""
