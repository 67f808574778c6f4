"""librdkafka for asyncio: the one place that imports `confluent_kafka`. Its threads hand batches to the loop; nothing blocks it."""
