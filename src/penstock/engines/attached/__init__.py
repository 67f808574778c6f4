"""Consumers whose subscriptions run at another broker or process, the owner of the partition."""
