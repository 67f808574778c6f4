"""Load: the topics in use, and what the WebSocket endpoint's sockets do, in the words of Pulsar's WebSocket proxy."""

from typing import Any, Final, cast

from penstock.broker.consumer import Consumer
from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.proxied import LATENCY_US, Meter, ProxiedSocket

from .call import Call
from .operations import BUNDLE, Table
from .stats import shown_owner, topic_stats

table = Table()

_METRICS: Final = (
    "brk_topics_count",
    "brk_in_rate",
    "brk_in_tp_rate",
    "brk_out_rate",
    "brk_out_tp_rate",
    "brk_producers_count",
    "brk_consumers_count",
    "brk_subscriptions_count",
)


@table.on("GET", "/admin/v2/broker-stats/topics", "/admin/v2/broker-stats/destinations")
async def all_stats(call: Call) -> dict[str, Any]:
    """The statistics of the topics in use, by namespace, bundle and domain."""
    call.caller.may_administer()
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for topic in call.broker.topics.open_topics:
        bundles = found.setdefault(str(topic.name.namespace_name), {BUNDLE: {}})
        domain = bundles[BUNDLE].setdefault(topic.name.domain, {})
        domain[str(topic.name)] = await topic_stats(topic)
    return found


@table.on("GET", "/admin/v2/broker-stats/metrics")
async def broker_metrics(call: Call) -> list[dict[str, Any]]:
    """The rates of each namespace over the last minute, of its topics in use."""
    call.caller.may_administer()
    sums: dict[str, dict[str, float]] = {}
    for topic in call.broker.topics.open_topics:
        one = sums.setdefault(str(topic.name.namespace_name), dict.fromkeys(_METRICS, 0.0))
        subscriptions = topic.counted
        out = [s.figures().rate_out.per_second() for s in subscriptions]
        rates = (*topic.figures().rate_in.per_second(), sum(m for m, _ in out), sum(b for _, b in out))
        consumers = sum(len(s.consumers) for s in subscriptions)
        values = (1, *rates, len(topic.producers), consumers, len(subscriptions))
        for name, value in zip(_METRICS, values, strict=True):
            one[name] += value
    return [{"metrics": one, "dimensions": {"namespace": name}} for name, one in sorted(sums.items())]


# -- the sockets of the WebSocket endpoint


@table.on("GET", "/admin/v2/proxy-stats/metrics")
async def socket_metrics(call: Call) -> list[dict[str, Any]]:
    """List the rates of each namespace over the last minute."""
    call.caller.may_administer()
    meters = {str(namespace): meter for namespace, meter in call.caller.context.proxied.meters.items()}
    return [{"metrics": _metrics(meters[name]), "dimensions": {"namespace": name}} for name in sorted(meters)]


@table.on("GET", "/admin/v2/proxy-stats/stats")
async def sockets(call: Call) -> dict[str, Any]:
    """Describe the sockets of every topic."""
    call.caller.may_administer()
    by_topic: dict[str, list[ProxiedSocket]] = {}
    for socket in call.caller.context.proxied:
        for topic in socket.topics:
            by_topic.setdefault(str(topic), []).append(socket)
    return {topic: _shown(by_topic[topic]) for topic in sorted(by_topic)}


@table.on("GET", "/admin/v2/proxy-stats/{domain}/{tenant}/{namespace}/{topic}/stats")
async def sockets_of(call: Call) -> dict[str, Any]:
    """Describe the sockets of a topic."""
    call.caller.may_administer()
    topic = call.named_topic
    found = [socket for socket in call.caller.context.proxied if topic in socket.topics]
    if not found and not call.broker.topics.exists(topic):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "Topic does not exist")
    return _shown(found)


def _shown(sockets: list[ProxiedSocket]) -> dict[str, Any]:
    producers: list[dict[str, Any]] = []
    consumers: list[dict[str, Any]] = []
    for socket in sockets:
        shown: dict[str, Any] = {"remoteConnection": socket.remote}
        if socket.role == "producer":
            producer = cast(Producer, socket.who)
            producers.append(
                {**shown, "numberOfMsgPublished": producer.figures().published, **shown_owner(producer)}
            )
        else:
            consumer = cast(Consumer, socket.who)
            shown["subscriptionName"] = consumer.subscription
            shown["subscriptionType"] = consumer.options.type.value
            shown["subscriptionMode"] = "Durable" if consumer.options.durable else "NonDurable"
            consumers.append({**shown, "numberOfMsgDelivered": consumer.delivered, **shown_owner(consumer)})
    return {"producerStats": producers, "consumerStats": consumers}


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
    bounds = (*LATENCY_US, f"{LATENCY_US[-1]}_higher")
    counts = zip(bounds, meter.latency.counts, strict=True)
    return found | {f"ns_msg_publish_latency_{bound}": count for bound, count in counts}
