"""What Kafka refuses, as the endpoints answer it."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.engines.kafka.driver.errors import engine_error, passes
from penstock.model.errors import ErrorKind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorKind.TOPIC_NOT_FOUND),
        (KafkaError.TOPIC_ALREADY_EXISTS, ErrorKind.ALREADY_EXISTS),
        (KafkaError.MSG_SIZE_TOO_LARGE, ErrorKind.TOO_LARGE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ErrorKind.FORBIDDEN),
        (KafkaError.GROUP_ID_NOT_FOUND, ErrorKind.SUBSCRIPTION_NOT_FOUND),
        (KafkaError._ALL_BROKERS_DOWN, ErrorKind.UNAVAILABLE),
        (KafkaError.SASL_AUTHENTICATION_FAILED, ErrorKind.UNAVAILABLE),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, ErrorKind.UNAVAILABLE),
    ],
)
def test_each_has_a_kind(code: int, kind: ErrorKind) -> None:
    assert engine_error(KafkaError(code)).kind is kind
    assert engine_error(KafkaException(KafkaError(code))).kind is kind


def test_the_message_says_what_it_is_about_without_librdkafkas_prefixes() -> None:
    error = engine_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "orders")
    assert error.message == "orders: Unknown topic or partition"


def test_refused_credentials_are_the_servers() -> None:
    error = engine_error(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED))
    assert "credentials of this server" in error.message


def test_an_exception_without_an_error_of_kafkas_is_unavailable() -> None:
    assert engine_error(KafkaException("odd")).kind is ErrorKind.UNAVAILABLE


def test_a_leader_that_is_not_known_yet_passes() -> None:
    assert passes(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    assert not passes(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))


def test_a_token_that_is_missing_is_not_the_clusters_refusal() -> None:
    said = "Failed to acquire SASL OAUTHBEARER token: engine.token_file: the token has expired"
    error = engine_error(KafkaError(KafkaError._AUTHENTICATION, said))
    assert error.kind is ErrorKind.UNAVAILABLE
    assert error.message == (
        "this server has no token for the cluster: engine.token_file: the token has expired"
    )
