"""Paths of a server's URL."""

from urllib.parse import quote

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName


def topic_path(topic: TopicName) -> str:
    """Messages of a topic (PIP-64); the domain is named only if it is not `persistent`."""
    domain = "" if topic.persistent else f"{topic.domain}/"
    return f"/topics/{domain}{topic.tenant}/{topic.namespace}/{quoted(topic.local)}"


def partition_path(topic: TopicName, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}"


def subscription_path(topic: TopicName, subscription: str) -> str:
    return f"{topic_path(topic)}/subscription/{quoted(subscription)}"


def admin_path(topic: TopicName) -> str:
    """A topic as an administrator sees it."""
    return f"/admin/v2/{topic.domain}/{topic.tenant}/{topic.namespace}/{quoted(topic.local)}"


def subscription_admin_path(topic: TopicName, subscription: str) -> str:
    """A subscription as an administrator sees it."""
    return f"{admin_path(topic)}/subscription/{quoted(subscription)}"


def namespace_path(namespace: NamespaceName) -> str:
    """A namespace as an administrator sees it."""
    return f"/admin/v2/namespaces/{namespace}"


def lookup_path(topic: TopicName) -> str:
    """The broker of a topic; not found if it neither exists nor would be created by publishing to it."""
    return f"/lookup/v2/topic/{topic.domain}/{topic.tenant}/{topic.namespace}/{quoted(topic.local)}"


def proxy_stats_path(topic: TopicName) -> str:
    """What the WebSockets of a topic do."""
    return (
        f"/admin/v2/proxy-stats/{topic.domain}/{topic.tenant}/{topic.namespace}/{quoted(topic.local)}/stats"
    )


def schemas_path(topic: TopicName) -> str:
    """A topic's schemas as an administrator sees them."""
    return f"/admin/v2/schemas/{topic.tenant}/{topic.namespace}/{quoted(topic.local)}"


def quoted(name: str) -> str:
    """A name as one segment of a path; raises INVALID_NAME for `.` and `..`, which HTTP clients remove as dot segments."""
    if name in (".", ".."):
        raise PenstockError(ErrorKind.INVALID_NAME, f"{name!r} is not a name")
    return quote(name, safe="")
