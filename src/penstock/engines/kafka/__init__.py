"""The engine before an Apache Kafka cluster."""
