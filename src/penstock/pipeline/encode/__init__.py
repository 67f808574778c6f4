"""Columns to payloads by schema: what tables write into topics."""
