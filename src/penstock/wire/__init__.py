"""Bytes to typed values and back, without I/O: Pulsar's binary protocol, its entries and batches."""
