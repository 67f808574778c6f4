"""The REST proxy's API (docs/rest-proxy.md)."""
