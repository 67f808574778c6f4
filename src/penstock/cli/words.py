"""pulsar-admin's words for what is called otherwise here: who knows them need not learn ours. No help shows them."""

from typing import Final

# By group and word, ours: a command, and arguments that go before those that are given.
WORDS: Final[dict[str, dict[str, str]]] = {
    "": {"topicPolicies": "topics", "broker-stats": "brokers"},
    "topics": {
        "list-partitioned-topics": "topics list --partitioned",
        "create-partitioned-topic": "topics create",
        "delete-partitioned-topic": "topics delete",
        "get-partitioned-topic-metadata": "topics partitions",
        "update-partitioned-topic": "topics partitions",
        "partitioned-stats": "topics stats",
        "stats-internal": "topics internal-stats",
        "partitioned-stats-internal": "topics internal-stats",
        "info-internal": "topics internal-info",
        "partitioned-terminate": "topics terminate",
        "trim-topic": "topics trim",
        "get-message-id": "topics message-id",
        "get-message-by-id": "topics message",
        "examine-messages": "topics examine",
        "get-backlog-size": "topics backlog-size",
        "get-properties": "topics properties",
        "update-properties": "topics properties",
        "remove-properties": "topics properties",
        "subscriptions": "subscriptions list",
        "create-subscription": "subscriptions create",
        "unsubscribe": "subscriptions delete",
        "get-subscription-properties": "subscriptions properties",
        "update-subscription-properties": "subscriptions properties",
        "skip": "subscriptions skip",
        "clear-backlog": "subscriptions skip-all",
        "expire-messages": "subscriptions expire",
        "expire-messages-all-subscriptions": "subscriptions expire --all",
        "peek-messages": "subscriptions peek",
        "reset-cursor": "subscriptions reset",
        "analyze-backlog": "subscriptions analyze-backlog",
        "permissions": "permissions list",
        "grant-permission": "permissions grant",
        "revoke-permission": "permissions revoke",
    },
    "subscriptions": {"clear-backlog": "subscriptions skip-all", "reset-cursor": "subscriptions reset"},
    "namespaces": {
        "policies": "namespaces describe",
        "permissions": "permissions list",
        "grant-permission": "permissions grant",
        "revoke-permission": "permissions revoke",
        "get-properties": "namespaces properties",
        "set-properties": "namespaces properties",
        "clear-properties": "namespaces properties --clear",
    },
    "tenants": {"get": "tenants describe"},
    "schemas": {
        "get": "schemas show",
        "upload": "schemas register",
        "post": "schemas register",
        "compatibility": "schemas check",
    },
    "brokers": {
        "healthcheck": "brokers health",
        "leader-broker": "brokers leader",
        "get-runtime-config": "brokers configuration",
        "monitoring-metrics": "brokers metrics",
        "destinations": "brokers topics",
    },
}
# Policies are `set-retention` and so on there, in the groups `namespaces`, `topics` and `topicPolicies`.
_WITH_POLICIES: Final = ("topics", "namespaces")
_POLICY_VERBS: Final = ("get", "set", "remove")
_POLICIES: Final = {
    "backlog-quotas": "backlog-quota",
    "deduplication-status": "deduplication",
    "max-consumers": "max-consumers-per-topic",
    "max-producers": "max-producers-per-topic",
    "max-unacked-messages-on-consumer": "max-unacked-messages-per-consumer",
}


def ours(group: str, word: str) -> list[str]:
    """What a word of pulsar-admin is here: a command's words and its first arguments; none for an unknown one."""
    known = WORDS.get(group, {}).get(word)
    if known is not None:
        return known.split()
    verb, _, policy = word.partition("-")
    if group in _WITH_POLICIES and verb in _POLICY_VERBS and policy:
        return ["policies", verb, _POLICIES.get(policy, policy)]
    return []
