"""The REST endpoint: PIP-64 in its own dialect and in the one that Pulsar shipped (docs/rest.md)."""
