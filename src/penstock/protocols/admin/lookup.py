"""Where a topic is served (docs/binary.md): here."""

from penstock.protocols.http.answers import Answer

from .call import Call
from .table import Table

table = Table()


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", query=("authoritative",))
async def lookup(call: Call) -> Answer:
    """The addresses of the broker that serves a topic."""
    topic, broker = call.seen_topic, call.broker
    if not broker.topics.exists(topic) and not broker.topics.auto(topic).allowed:
        raise broker.topics.missing(topic)
    context = call.caller.context
    plain = call.reached(context.pulsar_url, context.pulsar_advertised)
    tls = call.reached(context.pulsar_tls_url, context.pulsar_tls_advertised)
    return Answer(
        body={
            "brokerUrl": plain,
            "brokerUrlTls": tls,  # clients demand that the key is there
            "brokerUrlSsl": tls,
            "httpUrl": call.reached(context.http_url) or f"http://{call.host}",
            "httpUrlTls": call.reached(context.https_url),
            "nativeUrl": plain,
        }
    )
