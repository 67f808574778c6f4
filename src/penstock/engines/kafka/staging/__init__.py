"""Staged publishing before Kafka: stages are in a separate topic until one transaction appends them."""
