"""The bounds and habits of a broker, each with its default and its reason."""

from typing import Literal

import msgspec

from penstock.model.secret import Secret


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs to know of the configuration."""

    auto_create_topics: bool = True  # Pulsar's allowAutoTopicCreation
    auto_create_namespaces: bool = (
        False  # with their tenants; off, as in Pulsar: a typo is an error, not a tenant
    )
    auto_create_partitions: int = 0  # 0: topics created on the way have no partitions, as in Pulsar
    deduplication: bool = False  # for namespaces that do not say; Pulsar's brokerDeduplicationEnabled
    max_message_bytes: int = 5 * 1024 * 1024  # Pulsar's maxMessageSize
    max_schema_bytes: int = 1024 * 1024  # a definition is parsed on the loop: it must stay short work
    max_partitions: int = 1024  # of one topic; each is a separate log
    tail_bytes: int = 32 * 1024 * 1024  # newest entries kept in memory, all topics together
    transient_topic_bytes: int = 32 * 1024 * 1024  # kept by a non-persistent topic for slow readers
    cursor_flush_ms: int = 100  # acknowledgements that no request waits for are durable after this
    request_timeout_ms_max: int = 300_000  # longest wait for a reply
    stage_timeout_ms: int = (
        86_400_000  # after which uncommitted stages are deleted; long, as jobs of Spark may be
    )
    max_staged_bytes: int = 64 * 1024**3  # disk space of uncommitted stages
    max_staged_bytes_per_writer: int = 32 * 1024**3
    # Writers of staged batches that were unused for so long are forgotten: a repeated batch is new then.
    writer_expiry_minutes: int = 129_600  # 90 days, longer than a query rests; 0: never
    max_writers_per_role: int = 100_000  # and as many last commits; of each address without authentication
    # What topics and namespaces may decide otherwise. Of data, the default loses nothing.
    retention_minutes: int = -1  # acknowledged data is kept for so long; -1: for ever
    retention_mb: int = -1  # and while the topic is at most this large; -1: without bound
    message_ttl_s: int = (
        0  # older messages count as acknowledged; 0: never, Pulsar's ttlDurationDefaultInSeconds
    )
    backlog_quota_bytes: int = -1  # Pulsar's backlogQuotaDefaultLimitBytes; -1: none
    backlog_quota_s: int = -1  # Pulsar's backlogQuotaDefaultLimitSecond; -1: none
    # Pulsar's backlogQuotaDefaultRetentionPolicy
    backlog_quota_policy: Literal[
        "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
    ] = "producer_request_hold"
    # Each costs memory until it goes: generous bounds against clients that open without end. 0: none, as in Pulsar.
    max_producers_per_topic: int = 10_000
    max_consumers_per_topic: int = 10_000
    max_consumers_per_subscription: int = 10_000
    max_subscriptions_per_topic: int = 10_000  # each append wakes them all
    max_topics_per_namespace: int = 100_000  # logs: partitions count each
    # How retention, expiry and quotas are kept.
    keep_check_ms: int = (
        10_000  # changed topics are looked at so often; Pulsar: retention 2 min, expiry 5 min
    )
    # A publish that a quota or publishRate holds fails after this: below the 30 s that clients wait.
    quota_hold_ms: int = 20_000
    producer_memory_minutes: int = 360  # sequence ids of producers silent for so long are forgotten; 0: never


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster behind the server, and the server's credentials for it."""

    # pulsar://host:port or pulsar+ssl://…, kafka://host:port or kafka+ssl://…, several hosts by commas; empty: the server
    # keeps messages itself.
    url: str = ""
    admin_url: str = ""  # http(s)://host:port of a Pulsar cluster's admin REST, several hosts by commas
    token: Secret = Secret()
    token_file: str = ""  # read for each connection: a token may be renewed. For Kafka a JWT (OAUTHBEARER)
    username: str = ""  # of basic authentication, or of SASL before Kafka
    password: Secret = Secret()
    password_file: str = ""  # for Kafka; read again when it changes
    # For Kafka: a mechanism for `username`, or OAUTHBEARER with `token_file` or `oauth_token_url`.
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    oauth_token_url: str = ""  # http(s)://… of an identity provider: client credentials (RFC 6749, 4.4)
    oauth_client_id: str = ""
    oauth_client_secret: Secret = Secret()
    oauth_client_secret_file: str = ""  # read for each token: the secret may be renewed
    oauth_scope: str = ""
    oauth_trust_file: str = ""  # PEM: CAs of the identity provider's certificate; empty: the system's
    oauth_extensions: dict[str, str] = {}  # SASL extensions (KIP-342) for the brokers
    # The identity of producers and consumers there, if the server authenticates its callers. principal: the server,
    # with the caller's role as original principal (the server's role is in the cluster's proxyRoles); token: the caller,
    # by its own token; server: the server for all.
    act_for: Literal["principal", "token", "server"] = "principal"
    # What the server asks for itself names this principal as the original one: brokers want one of each of their proxyRoles.
    own_principal: str = ""
    tls_trust_file: str = ""  # PEM: the accepted issuers of the brokers' certificates; empty: the system's
    # PEM: the server's certificate, for authentication by certificate. For Kafka read again when it changes.
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_check_host: bool = True  # whether a broker's certificate has to name its host
    timeout_ms: int = 30_000  # for an answer of the cluster; Pulsar's operationTimeoutMs
    workers: int = 1  # processes of this server on this machine, behind one address
    # What the cluster knows of a topic (whether it is there, its partitions, schema and policies) is asked again after this.
    learned_ms: int = 5_000
    # A namespace of the cluster for uncommitted stages; created if missing.
    staging_namespace: str = "public/penstock"
    # Kafka's topics of a namespace begin with its prefix; without one named here it is `{tenant}.{namespace}.`, and nothing
    # for public/default.
    namespaces: dict[str, str] = {}
    # Of Kafka's consumer groups that show positions, and of those whose cursors are taken over from earlier releases.
    group_prefix: str = ""
    documents_topic: str = "__penstock"  # what Kafka has no place for: namespaces, policies, schemas
    # http(s)://… of a schema registry with Confluent's API: values before Kafka carry its framing then.
    schema_registry: str = ""
    schema_registry_username: str = ""
    schema_registry_password: Secret = Secret()
    schema_registry_token: Secret = Secret()  # a bearer token
    schema_registry_token_file: str = ""  # read for each request: a token may be renewed
    # Which subject a schema is registered in: `{topic}-value`, the name of its record, or `{topic}-{record}`.
    schema_registry_subjects: Literal["topic", "record", "topic-record"] = "topic"
    schema_registry_normalize: bool = False  # have the registry compare schemas without their layout
    schemas_topic: str = (
        "_schemas"  # of the server's own schema registry; Confluent's and Karapace's use the same one
    )
    replies_topic: str = "__penstock_replies"  # replies to requests of other processes
    journals_topic: str = "__penstock_journals"  # what byte positions of Kafka REST are kept by
    replication_factor: int = -1  # of topics that are created; -1: as Kafka's brokers say
    # How a key chooses its partition before Kafka; murmur2: as Kafka's Java clients, Connect, Streams and Spark do.
    partitioner: Literal["murmur2", "crc32", "fnv1a", "java", "murmur3"] = "murmur2"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"  # of records published to Kafka
