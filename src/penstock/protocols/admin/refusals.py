"""Calls of Pulsar's admin API that are not answered here, each with the sentence that says why (405).

An unknown path is 404; these are known, so that a tool can tell a server that lacks something from a wrong URL.
"""

from typing import Final

from .operations import NAMESPACE, SUBSCRIPTION, TOPIC, Refusal

_SET: Final = ("POST",)
_SET_OR_UNSET: Final = ("POST", "DELETE")
_ANY: Final = ("GET", "POST", "PUT", "DELETE")
NOT_REPLICATED: Final = "messages are not replicated: this server is a cluster of its own"
NOT_DEMANDED: Final = "a subscription may have any name, and messages that are not encrypted are taken"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"


def _both(*policies: str) -> tuple[str, ...]:
    """Policies' paths below a namespace and below a topic."""
    return tuple(f"{base}/{policy}" for base in (NAMESPACE, TOPIC) for policy in policies)


REFUSALS: Final = (
    Refusal(
        ("POST", "DELETE", "PUT"),
        (
            *_both("replication", "replicatorDispatchRate", "allowedClusters", "migration"),
            f"{TOPIC}/shadowTopics",
            f"{SUBSCRIPTION}/replicatedSubscriptionStatus",
        ),
        NOT_REPLICATED,
    ),
    Refusal(
        _SET_OR_UNSET,
        (*_both("persistence"), f"{NAMESPACE}/persistence/bookieAffinity"),
        "an entry is stored once, durably, in the server's own store: there are no bookies",
    ),
    Refusal(
        _SET_OR_UNSET,
        _both("delayedDelivery"),
        "messages can always be delayed, to the millisecond",
    ),
    Refusal(
        _SET_OR_UNSET,
        (*_both("inactiveTopicPolicies"), f"{NAMESPACE}/subscriptionExpirationTime"),
        "topics and subscriptions stay until they are deleted",
    ),
    Refusal(
        _SET_OR_UNSET,
        (
            f"{NAMESPACE}/maxUnackedMessagesPerSubscription",
            f"{TOPIC}/maxUnackedMessagesOnSubscription",
        ),
        "unacknowledged messages are bounded by consumer: maxUnackedMessagesPerConsumer of a namespace, "
        "maxUnackedMessagesOnConsumer of a topic",
    ),
    Refusal(
        _SET_OR_UNSET,
        _both("subscribeRate"),
        "how often consumers subscribe is not bounded; the server's limits bound requests of a role",
    ),
    Refusal(
        _SET_OR_UNSET,
        (f"{TOPIC}/{{subscription}}/dispatchRate",),
        "subscriptionDispatchRate bounds every subscription of a topic alike",
    ),
    Refusal(
        _SET_OR_UNSET,
        (f"{TOPIC}/maxMessageSize",),
        "the largest message is the server's setting broker.max_message_bytes",
    ),
    Refusal(
        _SET_OR_UNSET,
        _both("deduplicationSnapshotInterval"),
        "sequence ids are stored with the messages: there are no snapshots",
    ),
    Refusal(
        ("POST", "PUT", "DELETE"),
        (
            *_both("offloadPolicies", "offload"),
            f"{NAMESPACE}/removeOffloadPolicies",
            f"{NAMESPACE}/offloadThreshold",
            f"{NAMESPACE}/offloadThresholdInSeconds",
            f"{NAMESPACE}/offloadDeletionLagMs",
        ),
        "nothing is offloaded: retention says what is kept",
    ),
    Refusal(
        ("GET",),
        (f"{NAMESPACE}/scanOffloadedLedgers",),
        "nothing is offloaded: retention says what is kept",
    ),
    Refusal(
        _SET_OR_UNSET,
        _both("entryFilters", "dispatcherPauseOnAckStatePersistent"),
        "what is delivered is not filtered, and acknowledgements never pause it",
    ),
    Refusal(
        ("POST", "PUT", "DELETE"),
        (f"{TOPIC}/schemaCompatibilityStrategy", f"{TOPIC}/schemaValidationEnforced"),
        "the namespace decides which schemas may follow one another, and whether messages need one",
    ),
    Refusal(
        ("GET", "PUT"),
        (f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy",),
        "schemaCompatibilityStrategy took its place",
    ),
    Refusal(
        ("POST", "DELETE"),
        (
            f"{NAMESPACE}/permissions/subscription/{{subscription}}",
            f"{NAMESPACE}/permissions/{{subscription}}/{{role}}",
        ),
        "roles are granted namespaces and topics, not single subscriptions",
    ),
    Refusal(
        _SET,
        (
            "/admin/v2/namespaces/grantPermissionsOnTopics",
            "/admin/v2/namespaces/revokePermissionsOnTopics",
        ),
        "permissions are granted topic by topic",
    ),
    Refusal(
        ("GET", "POST", "PUT", "DELETE"),
        (
            f"{NAMESPACE}/{{bundle}}",
            f"{NAMESPACE}/{{bundle}}/split",
            f"{NAMESPACE}/{{bundle}}/topicHashPositions",
            f"{NAMESPACE}/antiAffinity",
            "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        ),
        "a namespace is one bundle of one broker: it is never split or placed elsewhere",
    ),
    Refusal(
        _SET_OR_UNSET,
        (f"{NAMESPACE}/resourcegroup", f"{NAMESPACE}/resourcegroup/{{group}}"),
        "there are no resource groups: publishRate and dispatchRate bound topics",
    ),
    Refusal(
        _ANY,
        ("/admin/v2/resourcegroups/{group}",),
        "there are no resource groups: publishRate and dispatchRate bound topics",
    ),
    Refusal(
        ("GET",),
        (f"{TOPIC}/backlog",),
        "stats and internalStats have the backlog; nothing is estimated offline",
    ),
    Refusal(
        ("POST", "PUT", "DELETE"),
        (_CLUSTER, f"{_CLUSTER}/peers"),
        "this server is the only cluster: its configuration says how it is reached",
    ),
    Refusal(
        ("GET", "POST"),
        (f"{_CLUSTER}/migrate",),
        "this server is the only cluster: its configuration says how it is reached",
    ),
    Refusal(
        _ANY,
        (
            f"{_CLUSTER}/failureDomains/{{name}}",
            f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}",
            f"{_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}",
        ),
        "there is one broker: namespaces are not isolated from one another on several",
    ),
    Refusal(
        _SET_OR_UNSET,
        (
            "/admin/v2/brokers/configuration/{name}",
            "/admin/v2/brokers/configuration/{name}/{value}",
        ),
        "the configuration is read when the server starts",
    ),
    Refusal(
        _SET,
        ("/admin/v2/brokers/shutdown",),
        "the server is stopped by a signal: SIGTERM drains it",
    ),
    Refusal(
        ("GET",),
        (
            "/admin/v2/broker-stats/allocator-stats/{allocator}",
            "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}",
        ),
        "that is known of a Java broker under a load manager only; /metrics says what this process uses",
    ),
    Refusal(
        _SET_OR_UNSET,
        (
            "/admin/v2/resource-quotas",
            "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}",
        ),
        "there is no load to balance: nothing is set aside for a bundle",
    ),
    Refusal(
        _ANY,
        ("/admin/v2/bookies/racks-info/{bookie}",),
        "an entry is stored once, durably, in the server's own store: there are no bookies",
    ),
    Refusal(
        _ANY,
        (
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
        "functions and connectors do not run here: penstock pipeline runs what reads and writes topics",
    ),
    Refusal(
        _ANY,
        ("/admin/v3/transactions/**",),
        "there are no transactions of Pulsar's protocol",
    ),
)
