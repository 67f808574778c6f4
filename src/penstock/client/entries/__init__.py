"""Whole entries over the protocol, as a proxy sends and receives them: no values, no schemas, no batching."""
