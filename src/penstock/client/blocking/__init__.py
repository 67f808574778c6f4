"""The blocking client."""

from .client import Client
from .consumer import Consumer
from .producer import BlockingMessageBuilder, Producer
from .reader import Reader, TableView

__all__ = ["BlockingMessageBuilder", "Client", "Consumer", "Producer", "Reader", "TableView"]
