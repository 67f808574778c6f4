"""Calls of Pulsar's admin API that are not answered here, each with the sentence that says why (405).

An unknown path is 404; these are known, so that a tool can distinguish a missing feature from a wrong URL.
"""

from typing import Final

from .operations import NAMESPACE, SUBSCRIPTION, TOPIC, Refusal

_GET: Final = ("GET",)
_SET: Final = ("POST",)
_SET_OR_UNSET: Final = ("POST", "DELETE")
_CHANGE: Final = ("POST", "PUT", "DELETE")
_ANY: Final = ("GET", "POST", "PUT", "DELETE")
NOT_REPLICATED: Final = "messages are not replicated: this server is a cluster of its own"
NOT_DEMANDED: Final = "a subscription may have any name, and messages that are not encrypted are taken"
_NO_BOOKIES: Final = "an entry is stored once, durably, in the server's own store: there are no bookies"
_NOT_OFFLOADED: Final = "nothing is offloaded: retention says what is kept"
_NO_RESOURCE_GROUPS: Final = "there are no resource groups: publishRate and dispatchRate bound topics"
_ONE_CLUSTER: Final = "this server is the only cluster: its configuration says how it is reached"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"


def _both(*policies: str) -> tuple[str, ...]:
    """Policies' paths below a namespace and below a topic."""
    return tuple(f"{base}/{policy}" for base in (NAMESPACE, TOPIC) for policy in policies)


def _refuse(reason: str, methods: tuple[str, ...], *paths: str) -> Refusal:
    return Refusal(methods, paths, reason)


REFUSALS: Final = (
    _refuse(
        NOT_REPLICATED,
        _CHANGE,
        *_both("replication", "replicatorDispatchRate", "allowedClusters", "migration"),
        f"{TOPIC}/shadowTopics",
        f"{SUBSCRIPTION}/replicatedSubscriptionStatus",
    ),
    _refuse(_NO_BOOKIES, _SET_OR_UNSET, *_both("persistence"), f"{NAMESPACE}/persistence/bookieAffinity"),
    _refuse("messages can always be delayed, to the millisecond", _SET_OR_UNSET, *_both("delayedDelivery")),
    _refuse(
        "topics and subscriptions stay until they are deleted",
        _SET_OR_UNSET,
        *_both("inactiveTopicPolicies"),
        f"{NAMESPACE}/subscriptionExpirationTime",
    ),
    _refuse(
        "unacknowledged messages are bounded by consumer: maxUnackedMessagesPerConsumer of a namespace, "
        "maxUnackedMessagesOnConsumer of a topic",
        _SET_OR_UNSET,
        f"{NAMESPACE}/maxUnackedMessagesPerSubscription",
        f"{TOPIC}/maxUnackedMessagesOnSubscription",
    ),
    _refuse(
        "how often consumers subscribe is not bounded; the server's limits bound requests of a role",
        _SET_OR_UNSET,
        *_both("subscribeRate"),
    ),
    _refuse(
        "subscriptionDispatchRate bounds every subscription of a topic alike",
        _SET_OR_UNSET,
        f"{TOPIC}/{{subscription}}/dispatchRate",
    ),
    _refuse(
        "the largest message is the server's setting broker.max_message_bytes",
        _SET_OR_UNSET,
        f"{TOPIC}/maxMessageSize",
    ),
    _refuse(
        "sequence ids are stored with the messages: there are no snapshots",
        _SET_OR_UNSET,
        *_both("deduplicationSnapshotInterval"),
    ),
    _refuse(
        _NOT_OFFLOADED,
        _CHANGE,
        *_both("offloadPolicies", "offload"),
        f"{NAMESPACE}/removeOffloadPolicies",
        f"{NAMESPACE}/offloadThreshold",
        f"{NAMESPACE}/offloadThresholdInSeconds",
        f"{NAMESPACE}/offloadDeletionLagMs",
    ),
    _refuse(_NOT_OFFLOADED, _GET, f"{NAMESPACE}/scanOffloadedLedgers"),
    _refuse(
        "what is delivered is not filtered, and acknowledgements never pause it",
        _SET_OR_UNSET,
        *_both("entryFilters", "dispatcherPauseOnAckStatePersistent"),
    ),
    _refuse(
        "the namespace decides which schemas may follow one another, and whether messages need one",
        _CHANGE,
        f"{TOPIC}/schemaCompatibilityStrategy",
        f"{TOPIC}/schemaValidationEnforced",
    ),
    _refuse(
        "schemaCompatibilityStrategy took its place",
        ("GET", "PUT"),
        f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy",
    ),
    _refuse(
        "roles are granted namespaces and topics, not single subscriptions",
        _SET_OR_UNSET,
        f"{NAMESPACE}/permissions/subscription/{{subscription}}",
        f"{NAMESPACE}/permissions/{{subscription}}/{{role}}",
    ),
    _refuse(
        "permissions are granted topic by topic",
        _SET,
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        "/admin/v2/namespaces/revokePermissionsOnTopics",
    ),
    _refuse(
        "a namespace is one bundle of one broker: it is never split or placed elsewhere",
        _ANY,
        f"{NAMESPACE}/{{bundle}}",
        f"{NAMESPACE}/{{bundle}}/split",
        f"{NAMESPACE}/{{bundle}}/topicHashPositions",
        f"{NAMESPACE}/antiAffinity",
        "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
    ),
    _refuse(
        _NO_RESOURCE_GROUPS,
        _SET_OR_UNSET,
        f"{NAMESPACE}/resourcegroup",
        f"{NAMESPACE}/resourcegroup/{{group}}",
    ),
    _refuse(_NO_RESOURCE_GROUPS, _ANY, "/admin/v2/resourcegroups/{group}"),
    _refuse(
        "stats and internalStats have the backlog; nothing is estimated offline", _GET, f"{TOPIC}/backlog"
    ),
    _refuse(_ONE_CLUSTER, _CHANGE, _CLUSTER, f"{_CLUSTER}/peers"),
    _refuse(_ONE_CLUSTER, ("GET", "POST"), f"{_CLUSTER}/migrate"),
    _refuse(
        "there is one broker: namespaces are not isolated from one another on several",
        _ANY,
        f"{_CLUSTER}/failureDomains/{{name}}",
        f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}",
        f"{_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}",
    ),
    _refuse(
        "the configuration is read when the server starts",
        _SET_OR_UNSET,
        "/admin/v2/brokers/configuration/{name}",
        "/admin/v2/brokers/configuration/{name}/{value}",
    ),
    _refuse("the server is stopped by a signal: SIGTERM drains it", _SET, "/admin/v2/brokers/shutdown"),
    _refuse(
        "that is known of a Java broker under a load manager only; /metrics says what this process uses",
        _GET,
        "/admin/v2/broker-stats/allocator-stats/{allocator}",
        "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}",
    ),
    _refuse(
        "there is no load to balance: nothing is set aside for a bundle",
        _SET_OR_UNSET,
        "/admin/v2/resource-quotas",
        "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}",
    ),
    _refuse(_NO_BOOKIES, _ANY, "/admin/v2/bookies/racks-info/{bookie}"),
    _refuse(
        "functions and connectors do not run here: penstock pipeline runs what reads and writes topics",
        _ANY,
        "/admin/v2/functions/**",
        "/admin/v2/worker/**",
        "/admin/v2/worker-stats/**",
        "/admin/v3/functions/**",
        "/admin/v3/sources/**",
        "/admin/v3/source/**",
        "/admin/v3/sinks/**",
        "/admin/v3/sink/**",
        "/admin/v3/packages/**",
    ),
    _refuse("there are no transactions of Pulsar's protocol", _ANY, "/admin/v3/transactions/**"),
)
