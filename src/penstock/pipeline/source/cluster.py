"""Option `fetch=direct`: the options `kafka.…` of the user, and what the server says of topics in its Kafka cluster.

The driver asks; tasks get what they need with their ranges.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Caller

PREFIX: Final = "kafka."  # before the name of a property of librdkafka
BOOTSTRAP: Final = "bootstrap.servers"

_RECORDS: Final = "/topics/records"
_DECIDED: Final = "is decided by the source; leave it out"
_PEM: Final = "is Java's; say kafka.ssl.ca.location, a file with the certificates to trust (PEM)"
# Properties that are refused, and what to do instead.
_REFUSED: Final = {
    **dict.fromkeys(
        (
            "auto.offset.reset",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "enable.partition.eof",
            "interceptor.classes",
            "isolation.level",
            "key.deserializer",
            "value.deserializer",
        ),
        _DECIDED,
    ),
    **dict.fromkeys(("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"), _PEM),
    "sasl.jaas.config": "is Java's; say kafka.sasl.username and kafka.sasl.password",
    "ssl.keystore.type": "is Java's; kafka.ssl.keystore.location is a PKCS#12 file",
}


class KafkaTopic(msgspec.Struct, frozen=True):
    """A topic's name in Kafka, and whether its contents may begin with ids of a schema registry; `own`: of the server's own."""

    name: str
    registry: bool
    own: bool = False


def parse_cluster(fetch: str, given: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's properties by which tasks reach the brokers; none if the server is read. Raises PipelineError, which names
    the option."""
    match fetch.strip().lower():
        case "gateway":
            for name in given:
                raise PipelineError(
                    f"option {PREFIX}{name}: the server is named by option url; options {PREFIX}… are for"
                    " fetch=direct, which reads the brokers of the server's Kafka cluster"
                )
            return {}
        case "direct":
            pass
        case _:
            raise PipelineError(f"option fetch: {fetch!r} is neither gateway nor direct")
    for name in given:
        if name in _REFUSED:
            raise PipelineError(f"option {PREFIX}{name} {_REFUSED[name]}")
    if not given.get(BOOTSTRAP, "").strip():
        raise PipelineError(
            f"option fetch=direct needs {PREFIX}{BOOTSTRAP}: the addresses of the brokers, like host:9092"
        )
    return dict(given)


def kafka_topics(client: Caller, topics: Iterable[str]) -> dict[str, KafkaTopic]:
    """How topics lie in the server's cluster. Raises PipelineError if it is not before Kafka, and as `Caller.call`."""
    found: dict[str, KafkaTopic] = {}
    for topic in sorted(set(topics)):
        try:
            answer = client.call("POST", _RECORDS, body={"topic": topic})
        except PenstockError as error:
            if error.kind is not ErrorKind.NOT_SUPPORTED:
                raise
            raise PipelineError(
                "option fetch=direct is for a server before a Kafka cluster, and this one is not; leave out fetch and"
                f" {PREFIX}…: the messages are then read from the server",
                error.kind,
            ) from None
        found[topic] = KafkaTopic(answer["topic"], answer["registry"], answer.get("own", False))
    return found


def id_meanings(client: Caller, topic: str, values: Iterable[int], keys: Iterable[int]) -> Any:
    """What ids in front of a topic's values and keys mean, as the server answers it."""
    return client.call(
        "POST", _RECORDS, body={"topic": topic, "values": sorted(values), "keys": sorted(keys)}
    )
