"""Avro by the specification: definitions, the binary encoding, and which schema reads which."""
