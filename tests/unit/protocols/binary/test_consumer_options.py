"""What a consumer of Pulsar's protocol says of itself."""

from types import SimpleNamespace
from typing import Any, cast

from penstock.model.policy import UNKNOWN_CLIENT
from penstock.protocols.binary.consumer_commands import _options
from penstock.wire import pulsar_pb2 as pb


def test_a_client_does_not_set_the_properties_of_processes() -> None:
    given = {"a": "b", "penstock-url": "http://elsewhere", "penstock-consumer-instance": "0"}
    metadata = [pb.KeyValue(key=key, value=value) for key, value in given.items()]
    command = pb.CommandSubscribe(
        topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, metadata=metadata
    )
    session = cast(Any, SimpleNamespace(client_of=lambda properties: UNKNOWN_CLIENT, of_process=False))
    options = _options(session, command)
    assert (options.properties, options.forwarded) == ({"a": "b"}, False)
    session.of_process = True
    options = _options(session, command)
    assert (options.properties, options.forwarded) == (given, True)
