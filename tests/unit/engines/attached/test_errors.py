"""What a cluster refuses, as the endpoints answer it."""

import pytest

from penstock.client import errors
from penstock.client.errors import PulsarException, server_error
from penstock.engines.attached.errors import engine_error, reason_of
from penstock.model.errors import ErrorKind

SERVICE = "org.apache.pulsar.broker.service.BrokerServiceException$"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f"{SERVICE}TopicTerminatedException: Topic was terminated", "Topic was terminated"),
        (f"java.util.concurrent.CompletionException: {SERVICE}NamingException: no\n\tat x", "no"),
        (
            "Incompatible schema: exists STRING caused by org.apache.pulsar.broker.service.schema"
            ".exceptions.IncompatibleSchemaException: Incompatible schema: exists STRING",
            "Incompatible schema: exists STRING",
        ),
        ("a plain sentence: of two parts", "a plain sentence: of two parts"),
        (
            "with strategy FULL: org.apache.avro.SchemaValidationException: Unable to read schema:\n{}\nusing:\n[]",
            "with strategy FULL: Unable to read schema: {} using: []",
        ),
        ("java.lang.NullPointerException", ""),
        ("x" * 600, "x" * 500 + "…"),
        ("", ""),
    ],
)
def test_javas_names_are_left_out(said: str, reason: str) -> None:
    assert reason_of(said) == reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (server_error(16, "Producer with name 'a' is already connected"), ErrorKind.PRODUCER_BUSY),
        (server_error(16, "Topic has an existing exclusive producer: a"), ErrorKind.EXCLUSIVE_PRODUCER),
        (server_error(25, "Topic has an existing exclusive producer: a"), ErrorKind.PRODUCER_FENCED),
        (server_error(22, "Exceed maximum message size"), ErrorKind.TOO_LARGE),
        (server_error(22, "not that"), ErrorKind.BAD_PARAMETER),
        (server_error(11, "Topic not found"), ErrorKind.TOPIC_NOT_FOUND),
        (server_error(11, "Namespace not found"), ErrorKind.NAMESPACE_NOT_FOUND),
        (server_error(15, "terminated"), ErrorKind.TOPIC_TERMINATED),
        (server_error(7, "held"), ErrorKind.BACKLOG_QUOTA_HOLD),
        (server_error(8, "refused"), ErrorKind.BACKLOG_QUOTA_EXCEPTION),
        (server_error(4, "no"), ErrorKind.FORBIDDEN),
        (server_error(18, "no"), ErrorKind.INCOMPATIBLE_SCHEMA),
        # It is this server that failed, or was refused, not its caller.
        (server_error(3, "who?"), ErrorKind.UNAVAILABLE),
        (server_error(1, "no metadata"), ErrorKind.UNAVAILABLE),
        (server_error(0, ""), ErrorKind.UNAVAILABLE),
        (errors.Timeout("no receipt within 30 s"), ErrorKind.UNAVAILABLE),
        (errors.LookupError("too many redirections"), ErrorKind.UNAVAILABLE),
        (errors.NotConnected("gone"), ErrorKind.UNAVAILABLE),
    ],
)
def test_each_has_its_kind(error: PulsarException, kind: ErrorKind) -> None:
    made = engine_error(error, "topic t")
    assert made.kind is kind
    assert made.message.startswith("topic t: ")
    assert len(made.message) > len("topic t: ")
