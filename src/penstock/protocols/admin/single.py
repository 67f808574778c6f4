"""What one server of one cluster decides by being that: policies of Pulsar with one answer here.

Each is answered in Pulsar's shape; what would change it is refused (`refusals`).
"""

from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .namespaces import NAMESPACE
from .policies import answer
from .refusals import NOT_DEMANDED, NOT_REPLICATED
from .server import CLUSTER
from .table import Table
from .topics import TOPIC

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


def _declare(path: str, summary: str, truth: Any, *, of_topic: bool) -> None:
    async def get(call: Call) -> Answer:
        if of_topic:
            call.broker.topics.partitions(call.topic)
        else:
            call.broker.namespaces.policies(call.namespace)
        return answer(truth)

    get.__doc__ = summary
    shape = Any if truth is None else type(truth)
    query = ("applied",) if of_topic else ()
    table.on("GET", path, answer=shape | None if shape is not Any else Any, query=query, fixed=True)(get)


for _path, _summary, _truth in _OF_NAMESPACE:
    _declare(f"{NAMESPACE}/{_path}", _summary, _truth, of_topic=False)
for _path, _summary, _truth in _OF_TOPIC:
    _declare(f"{TOPIC}/{_path}", _summary, _truth, of_topic=True)


# What may be set to what it is: tools do so when they make a namespace.
_AS_IT_IS: Final[tuple[tuple[str, Any, str], ...]] = (
    (f"{NAMESPACE}/replication", [CLUSTER], NOT_REPLICATED),
    (f"{TOPIC}/replication", [CLUSTER], NOT_REPLICATED),
    (f"{NAMESPACE}/encryptionRequired", False, NOT_DEMANDED),
    (f"{NAMESPACE}/subscriptionAuthMode", "None", NOT_DEMANDED),
)


def _declare_as_it_is(path: str, truth: Any, reason: str) -> None:
    shape: Any = list[str] if isinstance(truth, list) else type(truth)

    async def post(call: Call) -> Answer:
        if "topic" in call.path:
            call.broker.topics.partitions(call.topic)
        else:
            call.broker.namespaces.policies(call.namespace)
        if call.body(shape) != truth:
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, reason)
        return NO_CONTENT

    post.__doc__ = "Take what is the case already; anything else is refused."
    table.on("POST", path, body=shape, fixed=True)(post)


for _path, _truth, _reason in _AS_IT_IS:
    _declare_as_it_is(_path, _truth, _reason)


# -- what is a text, which is empty


@table.on("GET", f"{NAMESPACE}/antiAffinity", f"{NAMESPACE}/resourcegroup", status=204, fixed=True)
async def no_group(call: Call) -> Answer:
    """Answer nothing: there are no groups of namespaces."""
    call.broker.namespaces.policies(call.namespace)
    return NO_CONTENT


# -- what more is decided elsewhere


@table.on(
    "GET",
    f"{TOPIC}/subscription/{{subscription}}/replicatedSubscriptionStatus",
    answer=dict[str, bool],
    fixed=True,
)
async def replicated(call: Call) -> Answer:
    """Say of each partition that the subscription is not replicated."""
    found = await call.broker.subscriptions.of(call.consumed_topic, call.path["subscription"])
    return Answer(body={str(one.topic.name): False for one in found})


@table.on("GET", f"{TOPIC}/schemaCompatibilityStrategy", query=("applied",), answer=str | None, fixed=True)
async def strategy(call: Call) -> Answer:
    """Answer `null`, as the namespace decides; with `applied` what it decided."""
    name = call.topic
    call.broker.topics.partitions(name)
    return answer(call.broker.schemas.strategy(name) if call.flag("applied") else None)


@table.on("GET", f"{TOPIC}/schemaValidationEnforced", query=("applied",), answer=bool, fixed=True)
async def validation(call: Call) -> Answer:
    """Whether messages must have a schema where the topic has one: as the namespace decides."""
    name = call.topic
    call.broker.topics.partitions(name)
    return answer(call.broker.namespaces.policies(name.namespace_name).schema_validation_enforced)
