"""Metrics of the server as a whole: endpoints, commits, queues, requests, memory."""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.cluster import ClusterFigures, Ownership
from penstock.broker.fleet import Fleet
from penstock.broker.storage_health import CAUSES, StorageHealth
from penstock.protocols.audit import Audit
from penstock.protocols.load import Load
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.statistics import Writes

from .requests import RequestMetrics
from .samples import CLUSTER, Families

_BROKER: Final = {"cluster": CLUSTER}


def of_endpoints(families: Families, endpoints: RequestMetrics) -> None:
    """HTTP requests by endpoint, method and status, and how long they took."""
    for (endpoint, method, status), count in endpoints.requests.items():
        families.counter(
            "penstock_http_requests",
            "Answers given",
            count,
            endpoint=endpoint,
            method=method,
            status=str(status),
        )
    for endpoint, seconds in endpoints.seconds.items():
        families.histogram(
            "penstock_http_request_duration_seconds",
            "From a request's head to the end of its answer; long polls and streams too",
            seconds,
            endpoint=endpoint,
        )
    families.gauge("penstock_http_requests_in_progress", "Requests not answered yet", endpoints.in_progress)


def of_connections(families: Families, load: Load, websockets: int, binary: int) -> None:
    """Connections, and the memory held for them."""
    families.gauge("pulsar_active_connections", "Connections of all endpoints", load.connections, **_BROKER)
    families.gauge("penstock_connections", "Connections by endpoint", websockets, endpoint="ws")
    families.gauge("penstock_connections", "Connections by endpoint", binary, endpoint="pulsar")
    # A WebSocket may end later than its connection.
    http = max(0, load.connections - websockets - binary)
    families.gauge("penstock_connections", "Connections by endpoint", http, endpoint="http")
    families.counter("penstock_connections_refused", "Connections that were one too many", load.refused)
    families.gauge("penstock_tls_handshakes", "Connections whose TLS handshake goes on", load.handshakes)
    families.gauge(
        "penstock_request_bytes_held", "Bytes of bodies and frames, whole or in part, not answered", load.held
    )
    families.gauge(
        "penstock_output_bytes_waiting", "Bytes read for clients, or written, and not taken", load.unwritten
    )
    families.gauge("penstock_bytes_in_flight_max", "limits.max_bytes_in_flight", load.bytes_max)
    families.gauge(
        "penstock_principal_bytes_max", "Bytes of the role, or address, that holds most", load.largest
    )
    for reason, count in (("share", load.refused_share), ("all", load.refused_full)):
        families.counter(
            "penstock_bytes_refused",
            "Requests, frames and connections refused: beyond the share of their principal, or the bound of all",
            count,
            reason=reason,
        )
    families.counter(
        "penstock_bytes_slowed",
        "Times that reading or delivering waited for a principal's share",
        load.slowed,
    )


def of_refusals(families: Families, audit: Audit) -> None:
    """Refused connections."""
    families.counter(
        "penstock_refused_credentials",
        "Requests and connections that did not say who they are",
        audit.unauthenticated,
    )
    families.counter("penstock_refused_permissions", "Calls that the role was not allowed", audit.forbidden)


def of_writes(families: Families, writes: Writes) -> None:
    """The store's commits."""
    families.histogram("penstock_commit_duration_seconds", "Commits of the store", writes.commits)
    families.counter(
        "penstock_commit_operations", "Appends and other changes that were committed", writes.answered
    )
    families.gauge("penstock_commit_operations_waiting", "Changes that wait for their commit", writes.waiting)


def of_storage(families: Families, storage: StorageHealth) -> None:
    """Whether the storage is writable, and free space."""
    for cause in CAUSES:
        problem = storage.problem is not None and storage.problem.cause == cause
        families.gauge(
            "penstock_storage_failing", "1 while publishes are refused for this cause", problem, cause=cause
        )
    for failed in (*CAUSES, "damaged", "other"):
        families.counter(
            "penstock_storage_failed_commits",
            "Commits and checkpoints that failed",
            storage.failed_commits[failed],
            cause=failed,
        )
    families.counter(
        "penstock_storage_refused_publishes", "Publishes that the storage did not take", storage.refused
    )
    if storage.files is not None:
        files = storage.files()
        families.gauge("penstock_storage_size_bytes", "Bytes of the storage's files", files.size)
        families.gauge("penstock_storage_size_max_bytes", "Their bound; 0: the disk", files.size_max)
        families.gauge("penstock_storage_disk_free_bytes", "Bytes that the disk has left", files.disk_free)


def of_failures(families: Families, failures: Failures) -> None:
    """Ongoing failures of background work."""
    ongoing = failures.counts()
    for kind in FailureKind:
        families.gauge(
            "penstock_failing", "Ongoing failures of background work, by kind", ongoing[kind], kind=kind.value
        )
        families.counter(
            "penstock_failures", "Failed attempts of background work", failures.total[kind], kind=kind.value
        )


def of_cluster(families: Families, figures: ClusterFigures) -> None:
    """Errors that the clients of a cluster reported, and what this process owns before it."""
    if figures.ownership is not None:
        _of_ownership(families, figures.ownership)
    for (client, error), count in figures.client_errors.items():
        families.counter(
            "penstock_kafka_client_errors",
            "Errors that clients of the Kafka cluster reported, by kind of client and librdkafka's code",
            count,
            client=client,
            error=error,
        )


def _of_ownership(families: Families, ownership: Ownership) -> None:
    """The partitions that this process owns before Kafka, and its cursors."""
    families.gauge(
        "penstock_kafka_slots_owned", "Slots of partitions that this process serves", ownership.slots
    )
    families.gauge(
        "penstock_kafka_ownership_refused",
        "1 if the cluster or the settings do not let this process own slots",
        bool(ownership.refusal),
    )
    families.counter(
        "penstock_kafka_lease_doubts",
        "Times that the process was stopped for so long that its slots had to be confirmed",
        ownership.doubts,
    )
    families.histogram(
        "penstock_kafka_cursor_save_duration_seconds",
        "Saves of cursors, until they were durable",
        ownership.saves,
    )
    for reason, count in ownership.misfits.items():
        families.counter(
            "penstock_kafka_cursor_misfits",
            "Cursors that did not fit their logs and begin at the earliest safe place",
            count,
            reason=reason,
        )
    families.counter(
        "penstock_kafka_cursors_removed", "Cursors of topics that no longer exist", ownership.removed
    )


def of_fleet(families: Families, fleet: Fleet) -> None:
    """The other processes of the service, and the requests that were passed on to them."""
    counts = fleet.counts
    families.gauge("penstock_fleet_processes", "Other processes of the service", len(counts))
    for process, (sent, failed) in counts.items():
        families.counter(
            "penstock_forwarded_requests", "Requests passed on to another process", sent, process=process
        )
        families.counter(
            "penstock_forwarded_requests_failed",
            "Requests that another process did not answer",
            failed,
            process=process,
        )


def of_broker(families: Families, broker: Broker) -> None:
    """Requests that wait for replies, and caches."""
    requests = broker.requests.figures()
    families.gauge("penstock_requests_waiting", "Requests that wait for their reply", requests.waiting)
    families.counter("penstock_requests", "Requests (PIP-371) since the server started", requests.opened)
    for outcome, count in (
        ("answered", requests.answered),
        ("timed_out", requests.timed_out),
        ("withdrawn", requests.withdrawn),
    ):
        families.counter("penstock_requests_ended", "Requests by what became of them", count, outcome=outcome)
    families.counter("penstock_replies_late", "Replies that came too late, or twice", requests.late)
    families.gauge("penstock_tail_bytes", "Newest entries kept in memory", broker.topics.tail_bytes)
