"""One subscription of one topic: who takes part, what is out with whom, what goes to whom next."""

from .subscription import Subscription

__all__ = ["Subscription"]
