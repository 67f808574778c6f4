"""Bodies for the OpenAPI document's examples: each is taken as it stands, for the topic `hello` of public/default."""

from typing import Any, Final

_RATE: Final = {
    "dispatchThrottlingRateInMsg": 1000,
    "dispatchThrottlingRateInByte": -1,
    "ratePeriodInSecond": 1,
}
_MESSAGES: Final = {"messages": [{"value": "hello, world", "key": "k", "properties": {"lang": "en"}}]}
_SHIPPED: Final = {"valueSchema": '{"type": "STRING"}', "messages": [{"payload": "hello, world", "key": "k"}]}
_SCHEMA: Final = {
    "type": "AVRO",
    "schema": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
    "properties": {},
}
_RETENTION: Final = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 1024}
_POLICIES: Final[dict[str, Any]] = {
    "retention": _RETENTION,
    "publishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
    "dispatchRate": _RATE,
    "subscriptionDispatchRate": _RATE,
    "messageTTL": 3600,
    "compactionThreshold": 104_857_600,
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
    "backlogQuota": {"limitSize": 1_073_741_824, "limitTime": -1, "policy": "producer_request_hold"},
}
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
    ("POST", f"{_REST}/subscription/{{subscription}}"): {
        "subscription_type": "Shared",
        "initial_position": "earliest",
    },
    ("POST", "/stages"): {"topics": ["hello"]},
    ("POST", "/topics/offsets"): {"topics": ["hello"]},
    ("POST", "/topics/sizes"): {"topics": ["hello"]},
    ("PUT", _TOPIC): {"team": "sales"},
    ("PUT", f"{_TOPIC}/partitions"): 4,
    ("PUT", f"{_TOPIC}/properties"): {"team": "sales"},
    ("PUT", _SUBSCRIPTION): "earliest",
    ("POST", f"{_SUBSCRIPTION}/resetcursor"): "earliest",
    ("PUT", f"{_SUBSCRIPTION}/properties"): {"team": "sales"},
    ("POST", f"{_SCHEMAS}/schema"): _SCHEMA,
    ("POST", f"{_SCHEMAS}/compatibility"): _SCHEMA,
    ("POST", f"{_SCHEMAS}/version"): _SCHEMA,
    ("PUT", "/admin/v2/tenants/{tenant}"): {"adminRoles": []},
    ("PUT", _NAMESPACE): {},
    **{("POST", f"{path}/{name}"): body for path in (_TOPIC, _NAMESPACE) for name, body in _POLICIES.items()},
}
