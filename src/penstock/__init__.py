"""Penstock: the web's way to a log of messages, over HTTP, WebSocket and Pulsar's protocol."""

__version__ = "0.1.0"
