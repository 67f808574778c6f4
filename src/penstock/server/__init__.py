"""Composition root: configuration, the application made of all doors, and the process round it."""
