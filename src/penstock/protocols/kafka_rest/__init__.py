"""The Kafka REST door: partitions as byte ranges over HTTP (DESIGN 4, Kafka REST)."""
