"""The Kafka REST endpoint: partitions as byte ranges over HTTP (docs/kafka-rest.md)."""
