"""The broker: what the endpoints see."""

from .broker import Broker

__all__ = ["Broker"]
