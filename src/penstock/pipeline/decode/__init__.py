"""Typed values: payloads to columns by the topic's registered schemas."""
