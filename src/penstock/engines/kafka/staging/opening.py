"""Puts staged publishing together."""

from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.driver.transactions import Transactions
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.staging.staging import Staging
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .parts import KafkaParts, Staged
from .space import Space
from .writers import KafkaWriters

SWEEP_MS: Final = 60_000


def open_staging(
    cluster: KafkaCluster,
    own: BrokerSettings,
    publishing: Publishing,
    fetcher: Fetcher,
    topics: KafkaTopics,
    clock: Clock,
    tasks: Tasks,
) -> Staging[Staged]:
    """Staging of a server; nothing is asked of the cluster yet."""
    settings, timeout_ms = cluster.settings, own.stage_timeout_ms
    space = Space(cluster, settings.documents_topic, timeout_ms, own.max_message_bytes)
    transactions = Transactions(
        cluster.clients,
        compression=settings.compression,
        message_bytes_max=own.max_message_bytes,
        timeout_s=cluster.timeout_s,
    )
    parts = KafkaParts(space, publishing.records, fetcher, clock)
    writers = KafkaWriters(space, transactions, parts, topics, publishing, clock, timeout_ms)
    return Staging(parts, writers, clock, tasks, timeout_ms=timeout_ms, sweep_ms=SWEEP_MS)
