"""The brokers of the cluster: this one; its configuration, its load and what it serves, as Pulsar's tools print them."""

from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .server import CLUSTER, check_cluster
from .stats import topic_stats
from .table import BUNDLE, Table

table = Table()

_QUOTA: Final = {  # of Pulsar's load manager: nothing is set aside for a bundle
    "msgRateIn": 0.0,
    "msgRateOut": 0.0,
    "bandwidthIn": 0.0,
    "bandwidthOut": 0.0,
    "memory": 0.0,
    "dynamic": True,
}


@table.on("GET", "/admin/v2/brokers", answer=list[str], fixed=True)
async def brokers(call: Call) -> Answer:
    """List the brokers: this one."""
    return Answer(body=[call.host])


@table.on("GET", "/admin/v2/brokers/{cluster}", answer=list[str], fixed=True)
async def brokers_of(call: Call) -> Answer:
    """List the brokers of a cluster: this one."""
    check_cluster(call)
    return Answer(body=[call.host])


@table.on("GET", "/admin/v2/brokers/leaderBroker", fixed=True)
async def leader(call: Call) -> Answer:
    """Describe the broker that leads: this one."""
    return Answer(body={"serviceUrl": _url(call), "brokerId": call.host})


@table.on("GET", "/admin/v2/brokers/health", text=True)
async def health(call: Call) -> Answer:
    """Answer `ok`, or why messages of persistent topics cannot be stored."""
    storage = call.broker.storage
    if storage.failing and storage.problem is not None:
        raise storage.error(storage.problem)
    return Answer(raw=b"ok")


@table.on("GET", "/admin/v2/brokers/ready", text=True, fixed=True)
async def ready(call: Call) -> Answer:
    """Answer `ok`."""
    return Answer(raw=b"ok")


@table.on("GET", "/admin/v2/brokers/version", text=True)
async def version(call: Call) -> Answer:
    """Answer Penstock's version."""
    from penstock import __version__

    return Answer(raw=f"penstock-{__version__}".encode())


@table.on("GET", "/admin/v2/brokers/backlog-quota-check", status=204, fixed=True)
async def check_quotas(call: Call) -> Answer:
    """Answer at once: quotas are checked whenever something is published."""
    call.caller.may_administer()
    return NO_CONTENT


@table.on("GET", "/admin/v2/brokers/internal-configuration", fixed=True)
async def internal_configuration(call: Call) -> Answer:
    """Name the metadata stores of a cluster: there are none beside the server's own."""
    call.caller.may_administer()
    return Answer(body={"ledgersRootPath": "", "metadataStoreUrl": "", "configurationMetadataStoreUrl": ""})


@table.on("GET", "/admin/v2/brokers/configuration", answer=list[str], fixed=True)
async def dynamic_names(call: Call) -> Answer:
    """List the settings that change while the server runs: none."""
    return Answer(body=[])


@table.on("GET", "/admin/v2/brokers/configuration/values", answer=dict[str, str], fixed=True)
async def dynamic_values(call: Call) -> Answer:
    """List the values of settings that were changed while the server runs: none."""
    return Answer(body={})


@table.on("GET", "/admin/v2/brokers/configuration/runtime", answer=dict[str, str])
async def runtime_configuration(call: Call) -> Answer:
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
    }
    return Answer(body={name: _property(value) for name, value in found.items()})


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@table.on("GET", "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces")
async def owned(call: Call) -> Answer:
    """The bundles that a broker serves: every namespace's."""
    call.caller.may_administer()
    check_cluster(call)
    if call.path["broker"] != call.host:
        raise PenstockError(ErrorKind.NOT_FOUND, f"broker {call.path['broker'][:80]!r} is not {call.host}")
    served = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return Answer(body={f"{name}/{BUNDLE}": served for name in call.broker.namespaces.all()})


def _url(call: Call) -> str:
    return call.reached(call.caller.context.http_url) or f"http://{call.host}"


# -- load


@table.on("GET", "/admin/v2/broker-stats/topics", "/admin/v2/broker-stats/destinations")
async def all_stats(call: Call) -> Answer:
    """The statistics of the topics in use, by namespace, bundle and domain."""
    call.caller.may_administer()
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for topic in call.broker.topics.open_topics:
        bundles = found.setdefault(str(topic.name.namespace_name), {BUNDLE: {}})
        domain = bundles[BUNDLE].setdefault(topic.name.domain, {})
        domain[str(topic.name)] = await topic_stats(topic)
    return Answer(body=found)


@table.on("GET", "/admin/v2/broker-stats/metrics", answer=list[dict[str, Any]])
async def metrics(call: Call) -> Answer:
    """The rates of each namespace over the last minute, of its topics in use."""
    call.caller.may_administer()
    sums: dict[str, dict[str, float]] = {}
    for topic in call.broker.topics.open_topics:
        one = sums.setdefault(str(topic.name.namespace_name), dict.fromkeys(_METRICS, 0.0))
        rates = [topic.rate_in.per_second()]
        delivered = [s.rate_out.per_second() for s in topic.subscriptions.values()]
        rates.append((sum(m for m, _ in delivered), sum(b for _, b in delivered)))
        consumers = sum(len(s.consumers) for s in topic.subscriptions.values())
        values = (1, *rates[0], *rates[1], len(topic.producers), consumers, len(topic.subscriptions))
        for name, value in zip(_METRICS, values, strict=True):
            one[name] += value
    return Answer(
        body=[{"metrics": one, "dimensions": {"namespace": name}} for name, one in sorted(sums.items())]
    )


_METRICS: Final = (
    "brk_topics_count",
    "brk_in_rate",
    "brk_in_tp_rate",
    "brk_out_rate",
    "brk_out_tp_rate",
    "brk_producers_count",
    "brk_consumers_count",
    "brk_subscriptions_count",
)


@table.on("GET", "/admin/v2/broker-stats/mbeans", answer=list[dict[str, Any]], fixed=True)
async def mbeans(call: Call) -> Answer:
    """List the MBeans of a Java process: none."""
    call.caller.may_administer()
    return Answer(body=[])


@table.on("GET", "/admin/v2/broker-stats/bookieops", fixed=True)
async def bookie_operations(call: Call) -> Answer:
    """List the operations that wait for bookies: none."""
    call.caller.may_administer()
    return Answer(body={})


@table.on("GET", "/admin/v2/broker-stats/load-report", status=204, fixed=True)
async def load_report(call: Call) -> Answer:
    """Answer nothing, as a standalone Pulsar does: there is no load to balance."""
    call.caller.may_administer()
    return NO_CONTENT


# -- what others there might be


@table.on(
    "GET", "/admin/v2/resource-quotas", "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}", fixed=True
)
async def resource_quota(call: Call) -> Answer:
    """What is set aside for a bundle: nothing."""
    call.caller.may_administer()
    return Answer(body=_QUOTA)


@table.on("GET", "/admin/v2/resourcegroups", answer=list[str], fixed=True)
async def resource_groups(call: Call) -> Answer:
    """List the resource groups: none."""
    call.caller.may_administer()
    return Answer(body=[])


@table.on("GET", "/admin/v2/bookies/all", fixed=True)
async def bookies(call: Call) -> Answer:
    """List the bookies: none."""
    call.caller.may_administer()
    return Answer(body={"bookies": []})


@table.on("GET", "/admin/v2/bookies/racks-info", fixed=True)
async def racks(call: Call) -> Answer:
    """List the racks of bookies: none."""
    call.caller.may_administer()
    return Answer(body={})
