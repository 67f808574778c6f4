"""What a server measures of itself, as Prometheus reads it. `page` is the one importer of prometheus_client."""
