"""Subscriptions that run in this process: those of the slots that it owns, and those of its readers (decision 0094)."""
