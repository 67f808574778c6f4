"""Where a topic is served (Pulsar 5.5): here."""

from penstock.model.errors import ErrorKind, PenstockError

from .answers import Answer
from .call import Call
from .table import Table

table = Table()


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", query=("authoritative",))
async def lookup(call: Call) -> Answer:
    """The addresses of the broker that serves a topic."""
    topic, broker = call.seen_topic, call.broker
    if not broker.topics.exists(topic) and (topic.partition >= 0 or not broker.settings.auto_create_topics):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
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
