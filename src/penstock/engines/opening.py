"""The engines that there are: which broker a configuration means."""

from pathlib import Path
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.core import broker as core
from penstock.engines.core.ports import Store
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.memory import MemoryStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.worker import WorkerAccess
from penstock.runtime.clock import Clock, LoopClock
from penstock.wire import entry as wire

# A message id names its log by the ledger alone, so those of non-persistent topics begin above all others.
TRANSIENT_LEDGERS: Final = 1 << 40


def open_embedded(
    settings: BrokerSettings,
    *,
    folder: Path | None = None,
    size_max_bytes: int = 0,
    reserve_bytes: int = 0,
    clock: Clock | None = None,
) -> Broker:
    """The embedded engine, not yet started; without a `folder` it keeps everything in memory, without a `clock` time is the
    system's.

    `size_max_bytes` bounds the folder's storage (0: the disk does), `reserve_bytes` is kept free of it for deletes.
    """
    store: Store
    if folder is None:
        store = MemoryStore()
    else:
        from penstock.engines.sqlite import SqliteStore  # a server in memory starts without it

        store = SqliteStore.bounded(folder, size_max_bytes, reserve_bytes)
    return core.Broker(store, MemoryStore(TRANSIENT_LEDGERS), wire, clock or LoopClock(), settings)


def open_pulsar(cluster: ClusterSettings, settings: BrokerSettings) -> Broker:
    """The engine before an Apache Pulsar cluster, not yet started; raises BAD_PARAMETER for settings that cannot be used."""
    from penstock.engines.pulsar.broker import (
        PulsarBroker,  # a server of its own starts without an HTTP client
    )

    return PulsarBroker(cluster, settings, LoopClock())


def open_worker(access: WorkerAccess, settings: BrokerSettings) -> Broker:
    """The engine of a worker, before the process that owns the log; not yet started."""
    from penstock.engines.worker.broker import (
        WorkerBroker,  # a server of its own starts without an HTTP client
    )

    return WorkerBroker(access, settings, LoopClock())


def open_cluster(
    cluster: ClusterSettings, settings: BrokerSettings, fleet: ProcessFleet | None = None
) -> Broker:
    """The engine before the cluster that `cluster.url` means, not yet started; raises BAD_PARAMETER. `fleet`: the other processes
    of the service."""
    for name in ("url", "admin_url"):
        if "@" in getattr(cluster, name):  # URLs are shown and logged; this one is not repeated
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"engine.{name} may have no user or password in it: they are engine.username and engine.password",
            )
    if not _is_kafka(cluster) and cluster.partitioner != ClusterSettings().partitioner:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            "engine.partitioner is for Kafka clusters: Pulsar's clients choose partitions by their own hash",
        )
    return open_kafka(cluster, settings, fleet) if _is_kafka(cluster) else open_pulsar(cluster, settings)


async def check_kafka(cluster: ClusterSettings) -> tuple[list[str], list[str]]:
    """Ask a Kafka cluster which principals may write the server's internal topics; returns findings and doubts, in sentences.

    Both are empty for another engine. Raises BAD_PARAMETER for settings that cannot be used.
    """
    if not _is_kafka(cluster):
        return [], []
    from penstock.engines.kafka.access import check_access

    found = await check_access(cluster)
    return found.right, found.doubts


def _is_kafka(cluster: ClusterSettings) -> bool:
    return cluster.url.startswith(("kafka://", "kafka+ssl://"))


def open_kafka(
    cluster: ClusterSettings, settings: BrokerSettings, fleet: ProcessFleet | None = None
) -> Broker:
    """The engine before an Apache Kafka cluster, not yet started; raises BAD_PARAMETER for settings that cannot be used,
    and where Kafka's client is not installed."""
    try:
        from penstock.engines.kafka.broker import KafkaBroker  # librdkafka is loaded by who needs it
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            "an engine before Kafka needs its client: pip install 'penstock[kafka]'",
        ) from None
    return KafkaBroker(cluster, settings, LoopClock(), fleet)
