"""Where a topic is served (Pulsar 5.5): here."""

from .answers import Answer
from .call import Call
from .table import Table

table = Table()


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", query=("authoritative",))
async def lookup(call: Call) -> Answer:
    """The addresses of the broker that serves a topic."""
    topic, broker = call.seen_topic, call.broker
    if not broker.topics.exists(topic) and not broker.topics.auto(topic).allowed:
        raise broker.topics.missing(topic)
    gate = call.session.gate
    plain = call.reached(gate.pulsar_url, gate.pulsar_advertised)
    tls = call.reached(gate.pulsar_tls_url, gate.pulsar_tls_advertised)
    return Answer(
        body={
            "brokerUrl": plain,
            "brokerUrlTls": tls,  # clients demand that the key is there
            "brokerUrlSsl": tls,
            "httpUrl": call.reached(gate.http_url) or f"http://{call.host}",
            "httpUrlTls": call.reached(gate.https_url),
            "nativeUrl": plain,
        }
    )
