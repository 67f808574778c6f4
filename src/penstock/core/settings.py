"""The bounds and habits of a broker, each with its default and its reason."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs to know of the configuration."""

    auto_create_topics: bool = True  # Pulsar's allowAutoTopicCreation
    auto_create_partitions: int = 0  # 0: topics created on the way have no partitions, as in Pulsar
    deduplication: bool = False  # for namespaces that do not say; Pulsar's brokerDeduplicationEnabled
    max_message_bytes: int = 5 * 1024 * 1024  # Pulsar's maxMessageSize
    max_schema_bytes: int = 1024 * 1024  # a definition is parsed on the loop: it must stay short work
    max_partitions: int = 1024  # of one topic; each is a log of its own
    tail_bytes: int = 32 * 1024 * 1024  # newest entries kept in memory, all topics together
    transient_topic_bytes: int = 32 * 1024 * 1024  # what a non-persistent topic keeps for who is late
    cursor_flush_ms: int = 100  # acknowledgements that nobody waits for are durable after this
    request_timeout_ms_max: int = 300_000  # longest wait for a reply
