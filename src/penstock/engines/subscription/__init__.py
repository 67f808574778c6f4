"""One subscription of one log: its consumers, unacknowledged messages, and the choice of the next receiver."""

from .consumer import Consumer
from .subscription import Subscription

__all__ = ["Consumer", "Subscription"]
