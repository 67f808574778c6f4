"""Pulsar's WebSocket API, v2 and v3: producers, consumers and readers as JSON frames."""
