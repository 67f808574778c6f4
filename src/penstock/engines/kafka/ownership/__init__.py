"""The owner of each partition before Kafka: slots that a group shares out, and cursors in a journal (decision 0094)."""
