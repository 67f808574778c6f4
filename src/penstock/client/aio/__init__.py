"""The client for asyncio."""

from .client import Client
from .consumer import Consumer
from .producer import AsyncMessageBuilder, Producer
from .reader import Reader

__all__ = ["AsyncMessageBuilder", "Client", "Consumer", "Producer", "Reader"]
