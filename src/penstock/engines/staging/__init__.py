"""Staged publishing, for every engine: one implementation over the ports that an engine implements (docs/decisions/0099)."""
