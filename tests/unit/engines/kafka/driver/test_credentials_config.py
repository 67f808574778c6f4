"""Settings as librdkafka's properties."""

from typing import Any

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver.credentials import properties
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret

_OAUTH = {"url": "kafka://a", "sasl_mechanism": "OAUTHBEARER"}
_CLIENT = {"oauth_token_url": "http://p/token", "oauth_client_id": "me", "oauth_client_secret": Secret("it")}


def _of(**settings: Any) -> dict[str, Any]:
    return properties(ClusterSettings(**settings))


def test_hosts_have_kafkas_port_unless_they_name_one() -> None:
    found = _of(url="kafka://a,b:1234,[::1],[::1]:5")
    assert found["bootstrap.servers"] == "a:9092,b:1234,[::1]:9092,[::1]:5"
    assert found["security.protocol"] == "PLAINTEXT"


def test_tls_checks_the_hosts_name_by_the_systems_authorities() -> None:
    found = _of(url="kafka+ssl://a")
    assert found["security.protocol"] == "SSL"
    assert found["ssl.ca.location"] == "probe"
    assert found["ssl.endpoint.identification.algorithm"] == "https"


def test_tls_as_configured() -> None:
    found = _of(url="kafka+ssl://a", tls_trust_file="ca", tls_cert_file="own", tls_check_host=False)
    assert found["ssl.ca.location"] == "ca"
    assert found["ssl.certificate.location"] == found["ssl.key.location"] == "own"
    assert found["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize(
    ("url", "protocol"), [("kafka://a", "SASL_PLAINTEXT"), ("kafka+ssl://a", "SASL_SSL")]
)
def test_a_username_is_shown_by_sasl(url: str, protocol: str) -> None:
    found = _of(url=url, username="me", password=Secret("it"), sasl_mechanism="SCRAM-SHA-512")
    assert found["security.protocol"] == protocol
    assert (found["sasl.mechanism"], found["sasl.username"]) == ("SCRAM-SHA-512", "me")


def test_oauthbearer_is_sasl_without_a_username() -> None:
    found = _of(
        url="kafka+ssl://a",
        sasl_mechanism="OAUTHBEARER",
        token_file="t",
        oauth_extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool-2"},
    )
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert found["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-2"


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://a"},
        {"url": "kafka://"},
        {"url": "kafka://a,"},
        {"url": "kafka://me@a"},
        {"url": "kafka://a/b"},
        {"url": "kafka://a", "admin_url": "http://a"},
        {"url": "kafka://a", "token": Secret("t")},
        {"url": "kafka://a", "token_file": "t"},
        {"url": "kafka://a", "password": Secret("t")},
        {"url": "kafka://a", "password_file": "t"},
        {"url": "kafka://a", "username": "me", "password": Secret("t"), "password_file": "t"},
        {"url": "kafka://a", "oauth_token_url": "http://p/token"},
        _OAUTH,
        {**_OAUTH, "token_file": "t", "username": "me"},
        {**_OAUTH, "token_file": "t", "oauth_extensions": {"a b": "c"}},
        {**_OAUTH, "oauth_token_url": "http://p/token"},
        {**_OAUTH, "oauth_token_url": "http://p/token", "oauth_client_id": "me"},
        {**_OAUTH, **_CLIENT, "token_file": "t"},
        {**_OAUTH, **_CLIENT, "oauth_client_secret_file": "t"},
        {**_OAUTH, **_CLIENT, "oauth_token_url": "ftp://p"},
        {**_OAUTH, **_CLIENT, "oauth_token_url": "http://me:it@p"},
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        _of(**settings)
    assert caught.value.kind is ErrorKind.BAD_PARAMETER


def test_a_password_in_the_url_is_not_repeated() -> None:
    with pytest.raises(PenstockError) as caught:
        _of(url="kafka://me:s3cret@a")
    assert "s3cret" not in caught.value.message
