"""Schemas in a registry with Confluent's API, and its framing of values."""
