"""Where a topic is served (Pulsar 5.5): here."""

from penstock.model.errors import ErrorKind, PenstockError

from .answers import Answer
from .call import Call
from .table import Table

table = Table()


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", query=("authoritative",))
async def lookup(call: Call) -> Answer:
    """The addresses of the broker that serves a topic."""
    topic, broker = call.topic, call.broker
    if not broker.topics.exists(topic) and (topic.partition >= 0 or not broker.settings.auto_create_topics):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
    return Answer(
        body={
            "brokerUrl": _pulsar_url(call),
            "brokerUrlTls": "",  # clients demand that the key is there
            "brokerUrlSsl": "",
            "httpUrl": f"http://{call.host}",
            "httpUrlTls": "",
            "nativeUrl": _pulsar_url(call),
        }
    )


def _pulsar_url(call: Call) -> str:
    """Where Pulsar's protocol is spoken, by the name of this host that led the client here."""
    gate = call.session.gate
    if not gate.pulsar_url or gate.pulsar_advertised:
        return gate.pulsar_url
    host = call.host.rpartition(":")[0] if call.host[-1:] != "]" and ":" in call.host else call.host
    port = gate.pulsar_url.rpartition(":")[2]
    return f"pulsar://{host}:{port}" if host else gate.pulsar_url
