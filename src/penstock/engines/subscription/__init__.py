"""One subscription of one log: who takes part, what is out with whom, what goes to whom next."""

from .consumer import Consumer
from .subscription import Subscription

__all__ = ["Consumer", "Subscription"]
