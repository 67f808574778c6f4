"""The statistics of Pulsar's WebSocket proxy: what its sockets do, by namespace and by topic."""

from typing import Any

from penstock.engines.embedded.subscription import Consumer
from penstock.engines.embedded.topic.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.http.answers import Answer
from penstock.protocols.proxied import LATENCY_US, Meter, ProxiedSocket

from .call import Call
from .stats import shown_owner
from .table import Table

table = Table()


@table.on("GET", "/admin/v2/proxy-stats/metrics", answer=list[dict[str, Any]])
async def metrics(call: Call) -> Answer:
    """List the rates of each namespace over the last minute."""
    call.caller.may_administer()
    proxied = call.caller.context.proxied
    found = [
        {"metrics": _metrics(meter), "dimensions": {"namespace": str(namespace)}}
        for namespace, meter in sorted(proxied.meters.items(), key=lambda item: str(item[0]))
    ]
    return Answer(body=found)


@table.on("GET", "/admin/v2/proxy-stats/stats")
async def stats(call: Call) -> Answer:
    """Describe the sockets of every topic."""
    call.caller.may_administer()
    by_topic: dict[str, dict[str, Any]] = {}
    for socket in call.caller.context.proxied:
        for topic in socket.topics:
            _add(by_topic.setdefault(str(topic), _empty()), socket)
    return Answer(body=dict(sorted(by_topic.items())))


@table.on("GET", "/admin/v2/proxy-stats/{domain}/{tenant}/{namespace}/{topic}/stats")
async def topic_stats(call: Call) -> Answer:
    """Describe the sockets of a topic."""
    call.caller.may_administer()
    path = call.path
    topic = TopicName.of(path["domain"], path["tenant"], path["namespace"], path["topic"])
    sockets = [socket for socket in call.caller.context.proxied if topic in socket.topics]
    if not sockets and not call.broker.topics.exists(topic):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "Topic does not exist")
    found = _empty()
    for socket in sockets:
        _add(found, socket)
    return Answer(body=found)


def _empty() -> dict[str, Any]:
    return {"producerStats": [], "consumerStats": []}


def _add(stats: dict[str, Any], socket: ProxiedSocket) -> None:
    who = socket.who
    if isinstance(who, Producer):
        stats["producerStats"].append(
            {"remoteConnection": socket.remote, "numberOfMsgPublished": who.published, **shown_owner(who)}
        )
    elif isinstance(who, Consumer):
        stats["consumerStats"].append(
            {
                "remoteConnection": socket.remote,
                "subscriptionName": who.subscription,
                "subscriptionType": who.options.type.value,
                "subscriptionMode": "Durable" if who.options.durable else "NonDurable",
                "numberOfMsgDelivered": who.delivered,
                **shown_owner(who),
            }
        )


def _metrics(meter: Meter) -> dict[str, float]:
    published, bytes_published = meter.publishes.per_second()
    delivered, bytes_delivered = meter.deliveries.per_second()
    found: dict[str, float] = {
        "ns_msg_publish_rate": published,
        "ns_byte_publish_rate": bytes_published,
        "ns_msg_failure_rate": meter.failures.per_second()[0],
        "ns_msg_deliver_rate": delivered,
        "ns_byte_deliver_rate": bytes_delivered,
        "ns_msg_ack_rate": meter.acks.per_second()[0],
    }
    names = [*(str(bound) for bound in LATENCY_US), f"{LATENCY_US[-1]}_higher"]
    for name, count in zip(names, meter.latency.counts, strict=True):
        found[f"ns_msg_publish_latency_{name}"] = count
    return found
