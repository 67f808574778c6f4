"""The endpoint that speaks Pulsar's binary protocol (Pulsar's binary protocol)."""
