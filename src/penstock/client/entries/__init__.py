"""Producers and consumers of whole entries, as they are stored: what a proxy before a cluster uses."""
