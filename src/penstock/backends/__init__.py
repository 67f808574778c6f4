"""Storage for the core: each backend implements `core.ports.Store` and knows no other."""
