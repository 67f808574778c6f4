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
    plain = _reached(call, gate.pulsar_url, gate.pulsar_advertised)
    tls = _reached(call, gate.pulsar_tls_url, gate.pulsar_tls_advertised)
    return Answer(
        body={
            "brokerUrl": plain,
            "brokerUrlTls": tls,  # clients demand that the key is there
            "brokerUrlSsl": tls,
            "httpUrl": _reached(call, gate.http_url) or f"http://{call.host}",
            "httpUrlTls": _reached(call, gate.https_url),
            "nativeUrl": plain,
        }
    )


def _reached(call: Call, url: str, advertised: bool = False) -> str:
    """A door's address, by the name of this host that led the client here."""
    host = call.host.rpartition(":")[0] if call.host[-1:] != "]" and ":" in call.host else call.host
    if not url or advertised or not host:
        return url
    scheme, _, address = url.partition("://")
    return f"{scheme}://{host}:{address.rpartition(':')[2]}"
