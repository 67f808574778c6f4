"""Passwords and certificates that change while the server runs."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver.clients import Clients
from penstock.engines.kafka.driver.credentials import Credentials
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret


def _replace(file: Path, text: str) -> None:
    """As secrets are renewed: another file takes the name."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


def test_a_password_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    found = Credentials(ClusterSettings(url="kafka://a", username="me", password_file=str(file)))
    assert not found.password_changed()  # nobody has asked for it
    assert found.properties()["sasl.password"] == "one"
    assert not found.password_changed()
    _replace(file, "two")
    assert found.password_changed()
    assert found.properties()["sasl.password"] == "two"
    file.unlink()
    assert not found.password_changed()
    file.write_text("")
    assert not found.password_changed()
    file.write_text("three")
    assert found.password_changed()


def test_a_password_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    settings = ClusterSettings(url="kafka://a", username="me", password_file=str(tmp_path / "none"))
    with pytest.raises(PenstockError, match=r"engine\.password_file cannot be read") as caught:
        Credentials(settings).properties()
    assert caught.value.kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        ({"url": "kafka://a"}, "User:ANONYMOUS"),
        ({"url": "kafka://a", "username": "me", "password": Secret("it")}, "User:me"),
        ({"url": "kafka+ssl://a", "tls_cert_file": "own"}, None),
    ],
)
def test_who_the_server_is_to_brokers(settings: dict[str, Any], principal: str | None) -> None:
    assert Credentials(ClusterSettings(**settings)).principal == principal


def test_certificates_count_once_certificate_and_key_belong_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    cert, key, trust = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trust)

    def issue(only_certificate: bool = False) -> None:
        made = authority.issue_cert("penstock.test")
        made.cert_chain_pems[0].write_to_path(cert)
        if not only_certificate:
            made.private_key_pem.write_to_path(key)

    issue()
    clients = Clients(
        ClusterSettings(
            url="kafka+ssl://127.0.0.1:1",
            tls_cert_file=str(cert),
            tls_key_file=str(key),
            tls_trust_file=str(trust),
        )
    )
    clients.refresh_credentials()
    assert clients.generation == 0
    with caplog.at_level(logging.WARNING):
        issue(only_certificate=True)
        clients.refresh_credentials()
    assert clients.generation == 0
    assert "the certificates for Kafka cannot be used yet" in caplog.text
    issue()
    clients.refresh_credentials()
    assert clients.generation == 1


def test_clients_are_made_again_with_a_new_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one")
    clients = Clients(ClusterSettings(url="kafka://127.0.0.1:1", username="me", password_file=str(file)))
    clients.producer("producer", {})
    clients.refresh_credentials()
    assert clients.generation == 0
    _replace(file, "two")
    clients.refresh_credentials()
    clients.refresh_credentials()
    assert clients.generation == 1
    assert clients.credentials.properties()["sasl.password"] == "two"


async def test_a_call_that_reached_no_broker_says_that_they_refuse_the_server() -> None:
    clients = Clients(ClusterSettings(url="kafka://127.0.0.1:1"))

    def failed(error: Exception) -> asyncio.Future[None]:
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        made.set_exception(error)
        return made

    unreached = KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))
    with pytest.raises(KafkaException):
        await clients.wait_unless_refused(failed(unreached))
    clients.errors.report("admin", KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(PenstockError, match="refuses the credentials of this server: wrong password"):
        await clients.wait_unless_refused(failed(unreached))
    with pytest.raises(PenstockError, match="wrong password"):
        await clients.wait_unless_refused(failed(PenstockError(ErrorKind.UNAVAILABLE, "no answer")))
    missing = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(KafkaException):  # what a broker did answer
        await clients.wait_unless_refused(failed(missing))


async def test_a_call_without_an_answer_is_given_up_once_the_server_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.engines.kafka.driver.clients.REFUSED_S", 0.0)
    monkeypatch.setattr("penstock.engines.kafka.driver.clients.REFUSAL_CHECK_S", 0.01)
    clients = Clients(ClusterSettings(url="kafka://127.0.0.1:1"))
    clients.errors.report("admin", KafkaError(KafkaError._SSL, "certificate expired"))
    with pytest.raises(PenstockError, match="certificate expired"):
        await clients.wait_unless_refused(asyncio.get_running_loop().create_future())


def test_a_callback_of_a_polled_client_may_have_another_one_polled() -> None:
    clients = Clients(ClusterSettings(url="kafka://127.0.0.1:1"))

    class Polled:
        def __init__(self, made: list["Polled"]) -> None:
            self.made = made
            self.polls = 0

        def poll(self, timeout_s: float) -> None:
            self.polls += 1
            if not self.polls > 1:
                self.made.append(clients.poll_in_background(Polled([])))

    first = clients.poll_in_background(Polled([]))
    clients.poll()
    clients.poll()
    assert (first.polls, first.made[0].polls) == (2, 1)
