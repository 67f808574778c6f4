"""The cluster, which has one broker: this one; its configuration, and lookups of topics."""

from typing import Any, Final

from penstock import __version__
from penstock.model.errors import ErrorKind, PenstockError

from .call import Call
from .operations import BUNDLE, Table

table = Table()

CLUSTER: Final = "standalone"  # Pulsar's name for what runs in one process
NUMBERED: Final = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"  # what numbers entries, in Pulsar's words
BUNDLES: Final = {"boundaries": BUNDLE.split("_"), "numBundles": 1}


def check_cluster(call: Call) -> None:
    """Raise NOT_FOUND unless the path names this cluster."""
    if call.path["cluster"] != CLUSTER:
        raise PenstockError(ErrorKind.NOT_FOUND, f"cluster {call.path['cluster'][:80]} does not exist")


@table.on("GET", "/admin/v2/clusters/{cluster}")
async def cluster(call: Call) -> dict[str, Any]:
    """Describe a cluster."""
    check_cluster(call)
    context = call.caller.context
    encrypted = {
        "serviceUrlTls": call.https_url,
        "brokerServiceUrlTls": call.reached(context.pulsar_tls_url, context.pulsar_tls_advertised),
    }
    return {
        "serviceUrl": call.http_url,
        "brokerServiceUrl": call.reached(context.pulsar_url, context.pulsar_advertised),
        **{name: url for name, url in encrypted.items() if url},  # an empty text is not an address
    }


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", query=("authoritative",))
async def lookup(call: Call) -> dict[str, Any]:
    """The addresses of the broker that serves a topic."""
    topic, broker = call.seen_topic, call.broker
    if not broker.topics.exists(topic) and not broker.topics.auto(topic).allowed:
        raise broker.topics.missing(topic)
    context = call.caller.context
    plain = call.reached(context.pulsar_url, context.pulsar_advertised)
    tls = call.reached(context.pulsar_tls_url, context.pulsar_tls_advertised)
    return {
        "brokerUrl": plain,
        "brokerUrlTls": tls,  # clients demand that the key is there
        "brokerUrlSsl": tls,
        "httpUrl": call.http_url,
        "httpUrlTls": call.https_url,
        "nativeUrl": plain,
    }


# -- brokers


@table.on("GET", "/admin/v2/brokers", fixed=True)
async def brokers(call: Call) -> list[str]:
    """List the brokers: this one."""
    return [call.host]


@table.on("GET", "/admin/v2/brokers/{cluster}", fixed=True)
async def brokers_of(call: Call) -> list[str]:
    """List the brokers of a cluster: this one."""
    check_cluster(call)
    return [call.host]


@table.on("GET", "/admin/v2/brokers/leaderBroker", fixed=True)
async def leader(call: Call) -> dict[str, Any]:
    """Describe the broker that leads: this one."""
    return {"serviceUrl": call.http_url, "brokerId": call.host}


@table.on("GET", "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces")
async def owned(call: Call) -> dict[str, Any]:
    """The bundles that a broker serves: every namespace's."""
    call.caller.may_administer()
    check_cluster(call)
    if call.path["broker"] != call.host:
        raise PenstockError(ErrorKind.NOT_FOUND, f"broker {call.path['broker'][:80]!r} is not {call.host}")
    served = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return {f"{name}/{BUNDLE}": served for name in call.broker.namespaces.all()}


@table.on("GET", "/admin/v2/brokers/health")
async def health(call: Call) -> bytes:
    """Answer `ok`, or why messages of persistent topics cannot be stored."""
    storage = call.broker.storage
    if storage.failing and storage.problem is not None:
        raise storage.problem.new_error()
    return b"ok"


@table.on("GET", "/admin/v2/brokers/version")
async def version(call: Call) -> bytes:
    """Answer Penstock's version."""
    return f"penstock-{__version__}".encode()


@table.on("GET", "/admin/v2/brokers/configuration/runtime")
async def runtime_configuration(call: Call) -> dict[str, str]:
    """The settings that Pulsar has too, under Pulsar's names."""
    call.caller.may_administer()
    settings = call.broker.settings
    found = {
        "clusterName": CLUSTER,
        "allowAutoTopicCreation": settings.auto_create_topics,
        "defaultNumPartitions": max(1, settings.auto_create_partitions),
        "allowAutoTopicCreationType": "partitioned" if settings.auto_create_partitions else "non-partitioned",
        "brokerDeduplicationEnabled": settings.deduplication,
        "maxMessageSize": settings.max_message_bytes,
        "maxNumPartitionsPerPartitionedTopic": settings.max_partitions,
        "ttlDurationDefaultInSeconds": settings.message_ttl_s,
        "defaultRetentionTimeInMinutes": settings.retention_minutes,
        "defaultRetentionSizeInMB": settings.retention_mb,
        "backlogQuotaDefaultLimitBytes": settings.backlog_quota_bytes,
        "backlogQuotaDefaultLimitSecond": settings.backlog_quota_s,
        "backlogQuotaDefaultRetentionPolicy": settings.backlog_quota_policy,
        "maxProducersPerTopic": settings.max_producers_per_topic,
        "maxConsumersPerTopic": settings.max_consumers_per_topic,
        "maxConsumersPerSubscription": settings.max_consumers_per_subscription,
        "maxSubscriptionsPerTopic": settings.max_subscriptions_per_topic,
        "maxTopicsPerNamespace": settings.max_topics_per_namespace,
        # What no setting turns off: entries are numbered for clients that ask, and messages of batches are acknowledged one by one.
        "brokerEntryMetadataInterceptors": NUMBERED,
        "exposingBrokerEntryMetadataToClientEnabled": True,
        "acknowledgmentAtBatchIndexLevelEnabled": True,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()
    }
