"""The HTTP API of Kafka's world that Confluent defined: the schema registry (docs/schema-registry.md)."""
