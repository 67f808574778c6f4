"""What there is to say of a topic, by the operations that a Pulsar cluster behind the server has, too."""

from typing import Any, Final

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path, schemas_path
from penstock.model.names import TopicName

_NOT_THERE: Final = 404
_NOT_NUMBERED: Final = (
    404,
    501,
)  # a partition that the server has not learned of yet; entries without numbers

NO_TYPE: Final = (None, "None")  # of an unused subscription, here and at a cluster


def overview(client: HttpClient, topic: TopicName) -> dict[str, Any]:
    """A topic's partitions, size, subscriptions and schema; `messages` is None if a cluster does not count them."""
    try:
        found: dict[str, Any] = client.call("GET", admin_path(topic))
    except RemoteError as error:
        # A cluster has no overview: it takes other methods there, or answers 412 without a code of this server.
        if error.status != 405 and (error.status != 412 or error.code):
            raise
        return _of_cluster(client, topic)
    return found


def _of_cluster(client: HttpClient, topic: TopicName) -> dict[str, Any]:
    figures = statistics(client, topic)
    try:
        schema = client.call("GET", f"{schemas_path(topic)}/schema")
    except RemoteError as error:
        if error.status != _NOT_THERE:
            raise
        schema = {}
    return {
        "name": str(topic),
        "persistent": topic.persistent,
        "partitions": client.partitions(topic),
        "properties": (client.call("GET", f"{admin_path(topic)}/properties") or {})
        if topic.persistent
        else {},
        "messages": None,
        "storageSize": figures["storageSize"],
        "subscriptions": sorted(figures["subscriptions"]),
        "schemaType": schema.get("type"),
        "schemaVersion": schema.get("version"),
    }


def statistics(client: HttpClient, topic: TopicName) -> dict[str, Any]:
    """The statistics of a topic; of all its partitions together, if it has some."""
    path = admin_path(topic)
    found: dict[str, Any]
    if topic.partition < 0 and client.partitions(topic):
        found = client.call("GET", f"{path}/partitioned-stats", params={"perPartition": "false"})
    else:
        found = client.call("GET", f"{path}/stats")
    return found


def extent(client: HttpClient, log: TopicName) -> dict[str, Any]:
    """The bounds and the size of a partition, or of a topic without; None if a cluster does not number its entries."""
    partition = max(0, log.partition)
    state = client.call("GET", f"{admin_path(log)}/internalStats")
    earliest, latest = state.get("firstOffset"), state.get("nextOffset")
    if latest is None:
        try:
            _, earliest, latest, _ = client.offsets(log.base, partition)
        except RemoteError as error:
            if error.status not in _NOT_NUMBERED:
                raise
    return {
        "partition": partition,
        "earliest": earliest,
        "latest": latest,
        "messages": None if latest is None or earliest is None else latest - earliest,
        "bytes": state["totalSize"],
    }
