"""What one server of one cluster decides by being that: what Pulsar asks, with one answer here.

Each is answered in Pulsar's shape; what would change it is refused (`refusals`).
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility

from .call import Call
from .cluster import BUNDLES, CLUSTER, check_cluster
from .operations import BUNDLE, NAMESPACE, SUBSCRIPTION, TOPIC, Table
from .refusals import NOT_DEMANDED, NOT_REPLICATED

table = Table()

_PERSISTENCE: Final = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 0.0,
}
_DELAYED: Final = {"tickTime": 1, "active": True, "maxDeliveryDelayInMillis": 0}
_INACTIVE: Final = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 0,
    "deleteWhileInactive": False,
}
_NOT_OFFLOADED: Final = {
    "status": "NOT_RUN",
    "lastError": "",
    "firstUnoffloadedMessage": {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1},
}

_NO_STORES: Final = {"ledgersRootPath": "", "metadataStoreUrl": "", "configurationMetadataStoreUrl": ""}
_NO_QUOTA: Final = {  # of Pulsar's load manager: nothing is set aside for a bundle
    "msgRateIn": 0.0,
    "msgRateOut": 0.0,
    "bandwidthIn": 0.0,
    "bandwidthOut": 0.0,
    "memory": 0.0,
    "dynamic": True,
}

# Below a namespace: path, what it is, the answer.
_OF_NAMESPACE: Final[tuple[tuple[str, str, Any], ...]] = (
    ("replication", "List the clusters that have the namespace's messages: this one.", [CLUSTER]),
    ("allowedClusters", "List the clusters that a namespace is restricted to: none is needed.", []),
    ("persistence", "Say how often an entry is stored: once, durably.", _PERSISTENCE),
    ("persistence/bookieAffinity", "Answer `null`: there are no bookies.", None),
    ("delayedDelivery", "Say whether messages can be delayed: always.", _DELAYED),
    ("inactiveTopicPolicies", "Say when topics that nobody uses are deleted: never.", _INACTIVE),
    ("maxUnackedMessagesPerSubscription", "Answer 0: only consumers are bounded.", 0),
    ("subscriptionExpirationTime", "Answer `null`: subscriptions do not expire.", None),
    ("subscribeRate", "Answer `null`: how often consumers subscribe is not bounded.", None),
    ("replicatorDispatchRate", "Answer `null`: nothing is replicated.", None),
    ("deduplicationSnapshotInterval", "Answer `null`: sequence ids are stored with messages.", None),
    ("subscriptionAuthMode", "Answer `None`: any name of a subscription may be used.", "None"),
    ("encryptionRequired", "Answer false: messages that are not encrypted are taken.", False),
    ("offloadThreshold", "Answer -1: nothing is offloaded.", -1),
    ("offloadThresholdInSeconds", "Answer -1: nothing is offloaded.", -1),
    ("offloadDeletionLagMs", "Answer `null`: nothing is offloaded.", None),
    ("offloadPolicies", "Answer `null`: nothing is offloaded.", None),
    ("entryFilters", "Answer `null`: entries are not filtered.", None),
    ("dispatcherPauseOnAckStatePersistent", "Answer false: acknowledgements never pause delivery.", False),
    ("permissions/subscription", "Answer `{}`: roles are granted namespaces and topics.", {}),
)

# Below a topic.
_OF_TOPIC: Final[tuple[tuple[str, str, Any], ...]] = (
    ("replication", "List the clusters that have the topic's messages: this one.", [CLUSTER]),
    ("persistence", "Say how often an entry is stored: once, durably.", _PERSISTENCE),
    ("delayedDelivery", "Say whether messages can be delayed: always.", _DELAYED),
    ("inactiveTopicPolicies", "Say when the topic is deleted because nobody uses it: never.", _INACTIVE),
    ("maxUnackedMessagesOnSubscription", "Answer 0: only consumers are bounded.", 0),
    ("subscribeRate", "Answer `null`: how often consumers subscribe is not bounded.", None),
    ("replicatorDispatchRate", "Answer `null`: nothing is replicated.", None),
    ("deduplicationSnapshotInterval", "Answer `null`: sequence ids are stored with messages.", None),
    ("maxMessageSize", "Answer `null`: the server's max_message_bytes holds.", None),
    ("offload", "Answer NOT_RUN: nothing is offloaded.", _NOT_OFFLOADED),
    ("offloadPolicies", "Answer `null`: nothing is offloaded.", None),
    ("entryFilters", "Answer `null`: entries are not filtered.", None),
    ("shadowTopics", "Answer `null`: there are none.", None),
    ("dispatcherPauseOnAckStatePersistent", "Answer false: acknowledgements never pause delivery.", False),
    ("{subscription}/dispatchRate", "Answer `null`: subscriptionDispatchRate bounds them all.", None),
)


# What needs no permission, below /admin/v2.
_PUBLIC: Final[tuple[tuple[str, str, Any], ...]] = (
    ("clusters", "List the clusters: there is one.", [CLUSTER]),
    ("brokers/ready", "Answer `ok`.", b"ok"),
    ("brokers/configuration", "List the settings that change while the server runs: none.", []),
    (
        "brokers/configuration/values",
        "List the values of settings that were changed while the server runs: none.",
        {},
    ),
)

# Below a cluster.
_APART: Final = "List how brokers are kept apart: there is one."
_OF_CLUSTER: Final[tuple[tuple[str, str, Any], ...]] = (
    ("peers", "List a cluster's peers: none.", []),
    ("failureDomains", _APART, {}),
    ("namespaceIsolationPolicies", _APART, {}),
    ("namespaceIsolationPolicies/brokers", "List the brokers that namespaces are isolated on: none.", []),
)

# Answers for an administrator of the server, below /admin/v2; None is an empty body.
_QUOTA: Final = "What is set aside for a bundle: nothing."
_OF_SERVER: Final[tuple[tuple[str, str, Any], ...]] = (
    (
        "brokers/backlog-quota-check",
        "Answer at once: quotas are checked whenever something is published.",
        None,
    ),
    (
        "brokers/internal-configuration",
        "Name the metadata stores of a cluster: there are none beside the server's own.",
        _NO_STORES,
    ),
    ("broker-stats/mbeans", "List the MBeans of a Java process: none.", []),
    ("broker-stats/bookieops", "List the operations that wait for bookies: none.", {}),
    (
        "broker-stats/load-report",
        "Answer nothing, as a standalone Pulsar does: there is no load to balance.",
        None,
    ),
    ("resource-quotas", _QUOTA, _NO_QUOTA),
    ("resource-quotas/{tenant}/{namespace}/{bundle}", _QUOTA, _NO_QUOTA),
    ("resourcegroups", "List the resource groups: none.", []),
    ("bookies/all", "List the bookies: none.", {"bookies": []}),
    ("bookies/racks-info", "List the racks of bookies: none.", {}),
)

# The types of the answers outside namespaces and topics: by path, or by the answer itself.
_TYPES: Final[dict[str, Any]] = {
    "brokers/configuration/values": dict[str, str],
    "namespaceIsolationPolicies/brokers": list[dict[str, Any]],
    "broker-stats/mbeans": list[dict[str, Any]],
}
_BY_TYPE: Final[dict[type, Any]] = {list: list[str], dict: dict[str, Any]}

_NO_GROUPS: Final = "Answer nothing: there are no groups of namespaces."

Check = Callable[[Call], object]


def _declare(
    path: str, summary: str, truth: Any, shape: Any, check: Check, query: tuple[str, ...] = ()
) -> None:
    async def get(call: Call) -> Any:
        check(call)
        return truth

    get.__doc__ = summary
    table.on("GET", path, answer=shape, query=query, fixed=True)(get)


def _of_namespace(call: Call) -> None:
    call.broker.namespaces.policies(call.namespace)


def _of_topic(call: Call) -> None:
    call.broker.topics.partitions(call.topic)


def _decided(truth: Any) -> Any:
    return Any if truth is None else type(truth) | None


for _path, _summary, _truth in _OF_NAMESPACE:
    _declare(f"{NAMESPACE}/{_path}", _summary, _truth, _decided(_truth), _of_namespace)
for _path, _summary, _truth in _OF_TOPIC:
    _declare(f"{TOPIC}/{_path}", _summary, _truth, _decided(_truth), _of_topic, ("applied",))
for _rows, _base, _check in (
    (_PUBLIC, "/admin/v2", lambda call: None),
    (_OF_CLUSTER, "/admin/v2/clusters/{cluster}", check_cluster),
    (_OF_SERVER, "/admin/v2", lambda call: call.caller.may_administer()),
):
    for _path, _summary, _truth in _rows:
        _shape = _TYPES.get(_path) or _BY_TYPE.get(type(_truth), type(_truth))
        _declare(f"{_base}/{_path}", _summary, _truth, _shape, _check)
for _path in ("antiAffinity", "resourcegroup"):
    _declare(f"{NAMESPACE}/{_path}", _NO_GROUPS, None, type(None), _of_namespace)
_declare(f"{NAMESPACE}/bundles", "The bundles of a namespace: one.", BUNDLES, dict[str, Any], _of_namespace)
_declare(
    "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
    "The bundle that a topic is in: the namespace's only one.",
    BUNDLE.encode(),
    bytes,
    lambda call: call.broker.topics.partitions(call.seen_topic),
)


# -- what may be set to what it is: tools do so when they make a namespace


def _declare_setting(path: str, truth: Any, shape: Any, reason: str, check: Check) -> None:
    async def post(call: Call) -> None:
        """Accept the present value; anything else is refused."""
        check(call)
        if call.body(shape) != truth:
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, reason)

    table.on("POST", path, body=shape, fixed=True)(post)


_declare_setting(f"{NAMESPACE}/replication", [CLUSTER], list[str], NOT_REPLICATED, _of_namespace)
_declare_setting(f"{TOPIC}/replication", [CLUSTER], list[str], NOT_REPLICATED, _of_topic)
_declare_setting(f"{NAMESPACE}/encryptionRequired", False, bool, NOT_DEMANDED, _of_namespace)
_declare_setting(f"{NAMESPACE}/subscriptionAuthMode", "None", str, NOT_DEMANDED, _of_namespace)


# -- values that are decided elsewhere


@table.on("GET", f"{SUBSCRIPTION}/replicatedSubscriptionStatus", fixed=True)
async def replicated(call: Call) -> dict[str, bool]:
    """Say of each partition that the subscription is not replicated."""
    found = await call.broker.subscriptions.of(call.consumed_topic, call.subscription)
    return {str(one.topic.name): False for one in found}


@table.on("GET", f"{TOPIC}/schemaCompatibilityStrategy", query=("applied",), answer=str | None, fixed=True)
async def strategy(call: Call) -> Compatibility | None:
    """Answer `null`, as the namespace decides; with `applied` what it decided."""
    name = call.topic
    call.broker.topics.partitions(name)
    return call.broker.schemas.strategy(name) if call.flag("applied") else None


@table.on("GET", f"{TOPIC}/schemaValidationEnforced", query=("applied",), fixed=True)
async def validation(call: Call) -> bool:
    """Whether messages must have a schema if the topic has one: as the namespace decides."""
    name = call.topic
    call.broker.topics.partitions(name)
    return call.broker.namespaces.policies(name.namespace_name).schema_validation_enforced
