"""Staged publishing over the cluster's transactions (docs/decisions/0062)."""
