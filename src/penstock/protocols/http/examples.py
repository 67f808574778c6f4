"""Valid example bodies for the topic `hello` of public/default: for the OpenAPI document, and for answers
to bodies of another shape."""

from typing import Any, Final

_RATE: Final = {
    "dispatchThrottlingRateInMsg": 1000,
    "dispatchThrottlingRateInByte": -1,
    "ratePeriodInSecond": 1,
}
_MESSAGES: Final = {"messages": [{"value": "hello, world", "key": "k", "properties": {"lang": "en"}}]}
_SHIPPED: Final = {"valueSchema": '{"type": "STRING"}', "messages": [{"payload": "hello, world", "key": "k"}]}
_CONSUMER: Final = {"subscription_type": "Shared", "initial_position": "earliest"}
_SCHEMA: Final = {
    "type": "AVRO",
    "schema": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
    "properties": {},
}
# Policies that a namespace and a topic have under one name.
_POLICIES: Final[dict[str, Any]] = {
    "retention": {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 1024},
    "publishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
    "dispatchRate": _RATE,
    "subscriptionDispatchRate": _RATE,
    "messageTTL": 3600,
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
    "backlogQuota": {"limitSize": 1_073_741_824, "limitTime": -1, "policy": "producer_request_hold"},
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": True},
    "replication": ["standalone"],
    "maxConsumersPerSubscription": 100,
    "maxSubscriptionsPerTopic": 100,
}
_OF_TOPICS: Final[dict[str, Any]] = {
    "maxProducers": 100,
    "maxConsumers": 100,
    "maxUnackedMessagesOnConsumer": 1000,
    "deduplicationEnabled": True,
    "compactionThreshold": 104_857_600,
}
_OF_NAMESPACES: Final[dict[str, Any]] = {
    "maxProducersPerTopic": 100,
    "maxConsumersPerTopic": 100,
    "maxTopicsPerNamespace": 1000,
    "maxUnackedMessagesPerConsumer": 1000,
    "deduplication": True,
    "schemaValidationEnforced": True,
    "isAllowAutoUpdateSchema": True,
    "encryptionRequired": False,
    "subscriptionAuthMode": "None",
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 4,
    },
    "permissions/{role}": ["produce", "consume"],
}
_PLACE: Final = {"ledgerId": 0, "entryId": 0, "partitionIndex": -1, "batchIndex": -1}
_REST: Final = "/topics/{tenant}/{namespace}/{topic}"
_SHIPPED_REST: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_SCHEMAS: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscription/{{subscription}}"

EXAMPLES: Final[dict[tuple[str, str], Any]] = {
    ("POST", _REST): _MESSAGES,
    ("POST", f"{_REST}/partitions/{{partition}}"): _MESSAGES,
    ("POST", _SHIPPED_REST): _SHIPPED,
    ("POST", f"{_SHIPPED_REST}/partitions/{{partition}}"): _SHIPPED,
    ("POST", f"{_REST}/request"): {"messages": [{"value": "what time is it?"}]},
    ("POST", f"{_SHIPPED_REST}/request"): {"messages": [{"value": "what time is it?"}]},
    **{("POST", f"{rest}/subscription/{{subscription}}"): _CONSUMER for rest in (_REST, _SHIPPED_REST)},
    **{
        ("POST", f"{rest}/subscription/{{subscription}}{place}/cursor"): {"type": "seek", "publish_time": 0}
        for rest in (_REST, _SHIPPED_REST)
        for place in ("", "/consumer/{consumer_id}", "/consumers/{consumer_id}")
    },
    ("POST", "/topics/cursors"): {
        "subscription": "sub",
        "marks": [{"topic": "hello", "partition": 0, "ledger": 0, "offset": 0}],
    },
    ("POST", "/stages"): {"topics": ["hello"]},
    ("POST", "/stages/{writer}/{batch}/commit"): {"topics": ["hello"], "stages": []},
    ("POST", "/topics/offsets"): {"topics": ["hello"]},
    ("POST", "/topics/records"): {"topic": "hello"},
    ("POST", "/topics/sizes"): {"ranges": [{"topic": "hello", "partition": 0, "offset": 0}]},
    ("PUT", _TOPIC): {"team": "sales"},
    ("PUT", f"{_TOPIC}/partitions"): 4,
    ("PUT", f"{_TOPIC}/properties"): {"team": "sales"},
    ("PUT", _SUBSCRIPTION): "earliest",
    ("POST", f"{_SUBSCRIPTION}/resetcursor"): "earliest",
    ("PUT", f"{_SUBSCRIPTION}/properties"): {"team": "sales"},
    ("POST", f"{_SCHEMAS}/schema"): _SCHEMA,
    ("POST", f"{_SCHEMAS}/compatibility"): _SCHEMA,
    ("POST", f"{_SCHEMAS}/version"): _SCHEMA,
    ("POST", f"{_SUBSCRIPTION}/expireMessages"): _PLACE,
    ("POST", f"{_SUBSCRIPTION}/analyzeBacklog"): _PLACE,
    ("PUT", f"{_TOPIC}/backlogSize"): _PLACE,
    ("POST", f"{_TOPIC}/partitions"): 8,
    ("POST", f"{_TOPIC}/permissions/{{role}}"): ["produce", "consume"],
    **{(method, "/admin/v2/tenants/{tenant}"): {"adminRoles": ["admin"]} for method in ("PUT", "POST")},
    ("PUT", _NAMESPACE): {},
    ("PUT", f"{_NAMESPACE}/properties"): {"team": "sales"},
    ("PUT", f"{_NAMESPACE}/compactionThreshold"): 104_857_600,
    ("PUT", f"{_NAMESPACE}/schemaCompatibilityStrategy"): "FULL",
    **{("POST", f"{_TOPIC}/{name}"): body for name, body in (_POLICIES | _OF_TOPICS).items()},
    **{("POST", f"{_NAMESPACE}/{name}"): body for name, body in (_POLICIES | _OF_NAMESPACES).items()},
}


def example_of(method: str, operation: str) -> Any:
    """A body of an operation, by its declared path; None if there is none."""
    return EXAMPLES.get((method, operation))
