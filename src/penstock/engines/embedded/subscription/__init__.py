"""One subscription of one log: who takes part, what is out with whom, what goes to whom next."""

from penstock.broker.consumer import Budget, Delivery

from .consumer import Consumer
from .receiver import Receiver
from .subscription import Subscription

__all__ = ["Budget", "Consumer", "Delivery", "Receiver", "Subscription"]
