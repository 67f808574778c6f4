"""One subscription of one log: who takes part, what is out with whom, what goes to whom next."""

from .consumer import Consumer
from .receiver import Delivery, Receiver
from .source import Budget
from .subscription import Subscription

__all__ = ["Budget", "Consumer", "Delivery", "Receiver", "Subscription"]
