"""Staged publishing before Kafka: what is staged lies in a topic of its own until one transaction appends it."""
