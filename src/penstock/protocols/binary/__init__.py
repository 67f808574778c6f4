"""The endpoint that speaks Pulsar's binary protocol (reference/pulsar 5)."""
