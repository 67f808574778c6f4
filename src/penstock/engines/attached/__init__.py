"""Consumers whose subscriptions run elsewhere: at a broker or process that owns the partition."""
