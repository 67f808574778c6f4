"""Puts staged publishing together."""

from penstock.broker.settings import BrokerSettings
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.driver.transactions import Transactions
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topics import KafkaTopics
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .space import Space
from .staging import Staging


def open_staging(
    cluster: KafkaCluster,
    own: BrokerSettings,
    publishing: Publishing,
    fetcher: Fetcher,
    topics: KafkaTopics,
    clock: Clock,
    tasks: Tasks,
) -> Staging:
    """Staging of a server; nothing is asked of the cluster yet."""
    settings, timeout_ms = cluster.settings, own.stage_timeout_ms
    space = Space(cluster, settings.documents_topic, timeout_ms, own.max_message_bytes)
    transactions = Transactions(
        cluster.clients,
        compression=settings.compression,
        message_bytes_max=own.max_message_bytes,
        timeout_s=cluster.timeout_s,
    )
    records = publishing.records
    return Staging(space, transactions, records, fetcher, topics, publishing, clock, tasks, timeout_ms)
