"""Engines: what holds the log. None knows another."""
