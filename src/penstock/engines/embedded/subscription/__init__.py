"""One subscription of one log: who takes part, what is out with whom, what goes to whom next."""

from .consumer import Consumer
from .receiver import Budget, Delivery, Receiver
from .subscription import Subscription

__all__ = ["Budget", "Consumer", "Delivery", "Receiver", "Subscription"]
