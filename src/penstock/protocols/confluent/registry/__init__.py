"""The schema registry's API (docs/schema-registry.md)."""
