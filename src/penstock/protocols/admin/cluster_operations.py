"""The rights to Pulsar 4.0's admin operations through this server: a table of all operations that not only superusers may use.

Operations that are not in the table, such as those of later versions, need a superuser. The rights are Pulsar's own, tried on
a broker, except that only superusers may change and delete a tenant (Pulsar's brokers allow its administrators).

Names in path templates say how Pulsar decodes a segment:

- `{topic}`, `{cursor}`: `+` is a space, and `%XX` is decoded once. They may contain a slash.
- `{topic_of_schemas}`, `{subscription}`: `%XX` is decoded, then `+` and `%XX` once more.
- `{granted}`: a subscription whose `+` is a plus.
- others: `%XX` is decoded once; a slash is refused.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

from penstock.protocols.http.operations import Router

from .operations import PARTICULAR


class Right(Enum):
    """The right that a role needs; a superuser may do everything."""

    LOOK = "any permission on the topic"
    PRODUCE = "produce on the topic"
    TENANT = "to administer the tenant"
    SUPER = "to be a superuser"


class Operation(NamedTuple):
    """One path template, with the right by method."""

    path: str
    rights: dict[str, Right]


class MatchedOperation(NamedTuple):
    """The operation of a request: the right it needs, and the names in its path, decoded as Pulsar does."""

    right: Right
    names: dict[str, str]
    places: dict[str, int]  # the index of each name's segment


ONCE: Final = frozenset(("topic", "cursor"))
TWICE: Final = frozenset(("topic_of_schemas", "subscription"))
LOCAL: Final = ONCE | TWICE | {"granted"}  # names that may contain a slash
TOPICS: Final = ("topic", "topic_of_schemas")

_TENANT: Final = "/admin/v2/tenants/{tenant}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMAS: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic_of_schemas}"
_LOOKUP: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_TRANSACTIONS: Final = "/admin/v3/transactions"
_IN_TRANSACTIONS: Final = "{tenant}/{namespace}/{topic}"

# The operations of a tenant's administrators: methods, and the ends of their paths.
_OF_NAMESPACES: Final = (
    ("GET PUT DELETE", "", "properties", "compactionThreshold", "offloadDeletionLagMs"),
    (
        "GET POST DELETE",
        *("antiAffinity", "autoSubscriptionCreation", "autoTopicCreation", "deduplication", "dispatchRate"),
        *("dispatcherPauseOnAckStatePersistent", "entryFilters", "inactiveTopicPolicies"),
        *("maxConsumersPerSubscription", "maxConsumersPerTopic", "maxProducersPerTopic"),
        *("maxSubscriptionsPerTopic", "maxTopicsPerNamespace", "maxUnackedMessagesPerConsumer"),
        *("maxUnackedMessagesPerSubscription", "messageTTL", "persistence", "publishRate"),
        *("replicatorDispatchRate", "retention", "subscribeRate", "subscriptionDispatchRate"),
        *("subscriptionExpirationTime", "subscriptionTypesEnabled"),
    ),
    (
        "GET POST",
        *("allowedClusters", "deduplicationSnapshotInterval", "encryptionRequired"),
        *("isAllowAutoUpdateSchema", "offloadPolicies", "replication", "schemaValidationEnforced"),
        "subscriptionAuthMode",
    ),
    (
        "GET PUT",
        *("offloadThreshold", "offloadThresholdInSeconds", "schemaAutoUpdateCompatibilityStrategy"),
        "schemaCompatibilityStrategy",
    ),
    ("POST DELETE", "backlogQuota", "permissions/{role}"),
    ("GET DELETE", "property/{key}", "resourcegroup"),
    (
        "GET",
        *("backlogQuotaMap", "bundles", "delayedDelivery", "permissions", "permissions/subscription"),
        *("scanOffloadedLedgers", "topics", "{bundle}/topicHashPositions"),
    ),
    (
        "POST",
        *("clearBacklog", "clearBacklog/{granted}", "unsubscribe/{granted}", "resourcegroup/{group}"),
        *("{bundle}/clearBacklog", "{bundle}/clearBacklog/{granted}", "{bundle}/unsubscribe/{granted}"),
        "permissions/subscription/{granted}",
    ),
    ("PUT", "property/{key}/{value}"),
    ("DELETE", "permissions/{granted}/{role}", "removeOffloadPolicies", "{bundle}"),
)
_OF_TOPICS: Final = (
    ("PUT DELETE", ""),
    ("GET PUT DELETE", "properties", "schemaCompatibilityStrategy", "shadowTopics"),
    (
        "GET POST DELETE",
        *("compactionThreshold", "deduplicationEnabled", "deduplicationSnapshotInterval"),
        *("delayedDelivery", "dispatchRate", "dispatcherPauseOnAckStatePersistent", "entryFilters"),
        *("inactiveTopicPolicies", "maxConsumers", "maxConsumersPerSubscription", "maxMessageSize"),
        *("maxProducers", "maxSubscriptionsPerTopic", "maxUnackedMessagesOnConsumer"),
        *("maxUnackedMessagesOnSubscription", "messageTTL", "offloadPolicies", "persistence"),
        *("publishRate", "replication", "replicatorDispatchRate", "retention", "subscribeRate"),
        *("subscriptionDispatchRate", "subscriptionTypesEnabled", "{cursor}/dispatchRate"),
    ),
    ("GET DELETE", "autoSubscriptionCreation"),
    ("GET POST", "schemaValidationEnforced"),
    ("GET PUT", "compaction", "offload"),
    ("POST DELETE", "backlogQuota", "permissions/{role}"),
    ("PUT POST DELETE", "partitions"),
    ("PUT", "backlogSize", "unload"),
    (
        "POST",
        *("all_subscription/expireMessages/{seconds}", "createMissedPartitions", "terminate"),
        *("terminate/partitions", "trim"),
    ),
    ("DELETE", "policies", "truncate"),
    (
        "GET",
        *("backlog", "backlogQuotaMap", "examinemessage", "internal-info", "internalStats", "lastMessageId"),
        *("ledger/{ledger}/entry/{entry}", "messageid/{timestamp}", "partitioned-internalStats"),
        *("partitioned-stats", "permissions", "stats", "subscriptions"),
    ),
)
_OF_SUBSCRIPTIONS: Final = (
    ("PUT DELETE", ""),
    ("GET PUT", "properties"),
    ("GET POST", "replicatedSubscriptionStatus"),
    (
        "POST",
        *("analyzeBacklog", "expireMessages", "expireMessages/{seconds}", "resetcursor"),
        *("resetcursor/{timestamp}", "skip/{count}", "skip_all"),
    ),
    ("GET", "position/{position}"),
)


def _rows(
    right: Right, base: str, table: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...], Right]]:
    for methods, *ends in table:
        for end in ends:
            yield f"{base}/{end}" if end else base, tuple(methods.split()), right


_ROWS: Final = (
    (_LOOKUP, ("GET",), Right.LOOK),
    (f"{_LOOKUP}/bundle", ("GET",), Right.LOOK),
    (f"{_TOPIC}/partitions", ("GET",), Right.LOOK),
    *_rows(Right.LOOK, _SCHEMAS, (("GET", "schema", "schema/{version}", "schemas", "metadata"),)),
    (f"{_SCHEMAS}/version", ("POST",), Right.LOOK),
    (f"{_SCHEMAS}/schema", ("POST",), Right.PRODUCE),
    (f"{_SCHEMAS}/schema", ("DELETE",), Right.TENANT),
    (f"{_SCHEMAS}/compatibility", ("POST",), Right.TENANT),
    (_TENANT, ("GET",), Right.TENANT),
    ("/admin/v2/namespaces/{tenant}", ("GET",), Right.TENANT),
    (_TOPICS, ("GET",), Right.TENANT),
    (f"{_TOPICS}/partitioned", ("GET",), Right.TENANT),
    (f"{_TOPICS}/{{bundle}}", ("GET",), Right.TENANT),
    # This operation decodes the topic twice; the others with the same end decode it once.
    (f"{_TOPICS}/{{topic_of_schemas}}/autoSubscriptionCreation", ("POST",), Right.TENANT),
    *_rows(Right.TENANT, _NAMESPACE, _OF_NAMESPACES),
    *_rows(Right.TENANT, _TOPIC, _OF_TOPICS),
    *_rows(Right.TENANT, _SUBSCRIPTION, _OF_SUBSCRIPTIONS),
    # Superusers' operations whose paths have topics and subscriptions, or match a template above.
    ("/admin/v2/namespaces/{cluster}/antiAffinity/{group}", ("GET",), Right.SUPER),
    *_rows(
        Right.SUPER,
        _TRANSACTIONS,
        (
            (
                "GET",
                f"transactionInBufferStats/{_IN_TRANSACTIONS}/{{most}}/{{least}}",
                f"transactionInPendingAckStats/{_IN_TRANSACTIONS}/{{cursor}}/{{most}}/{{least}}",
                f"transactionBufferStats/{_IN_TRANSACTIONS}",
                f"pendingAckStats/{_IN_TRANSACTIONS}/{{cursor}}",
                f"pendingAckInternalStats/{_IN_TRANSACTIONS}/{{cursor}}",
                f"transactionBufferInternalStats/{_IN_TRANSACTIONS}",
                f"positionStatsInPendingAck/{_IN_TRANSACTIONS}/{{cursor}}/{{ledger}}/{{entry}}",
            ),
        ),
    ),
)


def _operations() -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for path, methods, right in _ROWS:
        rights = found.setdefault(path, Operation(path, {})).rights
        for method in methods:
            assert method not in rights, f"declared twice: {method} {path}"
            rights[method] = right
    return found


OPERATIONS: Final = _operations()
_ROUTER: Final = Router(OPERATIONS, PARTICULAR)
_NAME: Final = re.compile(r"{(\w+)}")
_UNLISTED: Final = MatchedOperation(Right.SUPER, {}, {})


def match_operation(method: str, raw: Sequence[str]) -> MatchedOperation:
    """The operation of a method and the raw segments of a path. If several templates match, the strictest right counts,
    and the names are those of Pulsar's choice, the template with the most literal text."""
    method = "GET" if method == "HEAD" else method
    decoded = [unquote(segment) for segment in raw]
    fitting = [OPERATIONS[path] for path, _ in _ROUTER.all(decoded)]
    if not fitting:
        return _UNLISTED
    fitting = [one for one in fitting if method in one.rights] or fitting
    best = max(fitting, key=lambda one: len(_NAME.sub("", one.path)))
    order = list(Right)
    right = max((one.rights.get(method, Right.SUPER) for one in fitting), key=order.index)
    parts = best.path.split("/")[1:]
    places = {part[1:-1]: place for place, part in enumerate(parts) if part.startswith("{")}
    return MatchedOperation(
        right, {name: _decoded_name(name, raw[place]) for name, place in places.items()}, places
    )


def _decoded_name(name: str, raw: str) -> str:
    """The name that Pulsar reads from a segment."""
    if name in TWICE:
        return unquote(unquote(raw).replace("+", " "))
    return unquote(raw.replace("+", " ")) if name in ONCE else unquote(raw)
