"""Composition root: configuration, the application made of all endpoints, and the process round it."""
