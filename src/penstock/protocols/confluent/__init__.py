"""The HTTP APIs of Kafka's world that Confluent defined: the schema registry and the REST proxy."""
