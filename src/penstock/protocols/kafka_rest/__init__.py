"""The Kafka REST endpoint: partitions as byte ranges over HTTP (DESIGN 4, Kafka REST)."""
