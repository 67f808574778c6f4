"""Who the server is to the cluster, and what is said where the cluster refuses it."""

from typing import Any

import pytest

from penstock.broker.acting import Acting
from penstock.broker.settings import ClusterSettings
from penstock.client.errors import AuthenticationError, AuthorizationError
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.credentials import (
    CallersToken,
    ServerAsItself,
    ServerCredentials,
    ServerForCaller,
    advice,
    credentials_of,
    tls_of,
)
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret

PLAIN: dict[str, Any] = {"url": "pulsar://127.0.0.1:1", "admin_url": "http://127.0.0.1:1"}


def credentials(**more: Any) -> ServerCredentials:
    return credentials_of(ClusterSettings(**{**PLAIN, **more}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": Secret("a"), "username": "b"}, "token and username exclude one another"),
        ({"token": Secret("a"), "token_file": "b"}, "token and token_file exclude one another"),
        ({"password": Secret("a")}, "engine.password needs engine.username"),
        ({"tls_key_file": "a"}, "engine.tls_key_file needs engine.tls_cert_file"),
        ({"tls_cert_file": "a"}, "engine.url has to be one of TLS"),
        ({"tls_cert_file": "a", "url": "pulsar+ssl://a"}, "engine.admin_url has to be one of TLS"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message) as refused:
        credentials(**given)
    assert refused.value.kind is ErrorKind.BAD_PARAMETER


def test_without_addresses_of_tls_there_is_no_context() -> None:
    assert tls_of(ClusterSettings(**PLAIN)) is None
    assert tls_of(ClusterSettings(**{**PLAIN, "admin_url": "https://127.0.0.1"})) is not None


def test_a_refusal_says_whose_credentials_they_are() -> None:
    own, unknown, roles = (
        credentials(token=Secret("a")),
        AuthenticationError("no"),
        AuthorizationError("Invalid"),
    )
    caller = CallersToken(Acting("app", Secret("t")))
    found = [
        engine_error(one)
        for one in (
            own.refused(unknown),
            ServerAsItself(own, "itself").refused(roles),
            ServerForCaller(own, "app").refused(unknown),
            ServerForCaller(own, "app").refused(roles),
            caller.refused(unknown),
        )
    ]
    kinds = [one.kind for one in found]
    assert kinds == [*[ErrorKind.UNAVAILABLE] * 3, ErrorKind.FORBIDDEN, ErrorKind.UNAUTHENTICATED]
    assert ["engine.token" in one.message for one in found] == [True, True, True, True, False]
    assert found[-1].message == "the cluster refuses the token of 'app': no"


def test_the_server_tries_again_and_a_caller_does_not() -> None:
    error = AuthenticationError("no")
    assert credentials(token=Secret("a")).refused(error).passing
    assert not CallersToken(Acting("app")).refused(error).passing


def test_a_token_file_that_is_not_there_is_named() -> None:
    with pytest.raises(AuthenticationError, match=r"engine\.token_file.*/nowhere") as refused:
        credentials(token_file="/nowhere").data()
    assert engine_error(refused.value).kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        ("certificate verify failed: Hostname mismatch", "engine.tls_check_host"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer", "engine.tls_trust_file"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert", "engine.tls_cert_file"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "engine.url"),
        ("Connect call failed", ""),
    ],
)
def test_errors_of_tls_name_a_setting(error: str, setting: str) -> None:
    assert setting in advice(error)
    assert bool(setting) == bool(advice(error))


def test_a_role_that_a_header_cannot_name_is_refused() -> None:
    own = credentials(token=Secret("a"))
    assert ServerForCaller(own, "app").headers()["X-Original-Principal"] == "app"
    with pytest.raises(PenstockError) as caught:
        ServerForCaller(own, "café").headers()
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
