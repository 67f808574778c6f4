"""Answers of version 3: resources and lists of them, each with its kind and its place."""

from typing import Any

import msgspec

from penstock.broker.cluster_view import ConfigSynonym


class Metadata(msgspec.Struct):
    """Where a resource is, and its name in Confluent's form (`crn:`)."""

    url: str = msgspec.field(name="self")
    resource_name: str | None = None


class ListMetadata(msgspec.Struct):
    """Where a list is. There are no further pages."""

    url: str = msgspec.field(name="self")
    next: str | None = None


class Related(msgspec.Struct):
    """Where what belongs to a resource is."""

    related: str


class Resource(msgspec.Struct, kw_only=True):
    """What every resource has. The first fields of all of them name the resource."""

    kind: str
    metadata: Metadata
    cluster_id: str


class Cluster(Resource, kw_only=True):
    """KafkaCluster."""

    controller: Related | msgspec.UnsetType = msgspec.UNSET
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class Topic(Resource, kw_only=True):
    """KafkaTopic."""

    topic_name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related
    authorized_operations: list[str] | msgspec.UnsetType = msgspec.UNSET


class Partition(Resource, kw_only=True):
    """KafkaPartition."""

    topic_name: str
    partition_id: int
    leader: Related | None
    replicas: Related
    reassignment: Related


class PartitionOffsets(Partition, kw_only=True):
    """KafkaPartitionWithOffsets."""

    earliest_offset: int
    latest_offset: int


class Replica(Resource, kw_only=True):
    """KafkaReplica."""

    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class TopicConfig(Resource, kw_only=True):
    """KafkaTopicConfig."""

    topic_name: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[ConfigSynonym]


class Broker(Resource, kw_only=True):
    """KafkaBroker."""

    broker_id: int
    host: str | None
    port: int | None
    rack: str | None = None
    configs: Related
    partition_replicas: Related


class ConsumerGroup(Resource, kw_only=True):
    """KafkaConsumerGroup."""

    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    is_mixed_consumer_group: bool = False
    coordinator: Related | None
    consumers: Related
    lag_summary: Related


class Consumer(Resource, kw_only=True):
    """KafkaConsumer."""

    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Related


class Assignment(Resource, kw_only=True):
    """KafkaConsumerAssignment."""

    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related
    lag: Related


class ConsumerLag(Resource, kw_only=True):
    """KafkaConsumerLag."""

    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    instance_id: str | None
    client_id: str


class LagSummary(Resource, kw_only=True):
    """KafkaConsumerGroupLagSummary."""

    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    max_lag_consumer: Related
    max_lag_partition: Related


class Resources(msgspec.Struct):
    """A list of resources."""

    kind: str
    metadata: ListMetadata
    data: list[Any]
