"""Settings of proxies that cannot be meant, and what a request's headers name."""

import pickle

import pytest
from tests.unit.engines.core.brokers import Bench

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.principal import Principal
from penstock.protocols.auth.proxies import HEADER, NONE, Original, ProxyRoles, RefusedOriginalError, named_in
from penstock.protocols.auth.settings import AuthConfigError, AuthSettings
from penstock.testing.credentials import Issuer


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(AuthConfigError, match=r"auth\.proxy_roles is given and auth\.enabled is false"):
        authenticator(AuthSettings(proxy_roles=("proxy",)), Bench().broker)
    anybody = Issuer().settings(proxy_roles=("guest",), anonymous_role="guest")
    with pytest.raises(AuthConfigError, match=r"auth\.anonymous_role is in auth\.proxy_roles"):
        authenticator(anybody, Bench().broker)


def test_what_headers_name() -> None:
    assert named_in([(b"host", b"x")]) is NONE
    assert named_in([(HEADER, "jürgen".encode())]) == Original("jürgen")
    for headers in ([(HEADER, b"a"), (HEADER, b"a")], [(HEADER, b"\xff")]):
        with pytest.raises(PenstockError) as refused:
            named_in(headers)
        assert refused.value.kind is ErrorKind.BAD_PARAMETER


@pytest.mark.parametrize("named", ["x" * 300, "tab\tin it", "\x00"])
def test_an_original_principal_that_can_be_none(named: str) -> None:
    with pytest.raises(PenstockError) as refused:
        ProxyRoles(["proxy"]).check(Principal("proxy"), Original(named))
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED


def test_a_refusal_can_be_pickled() -> None:
    refused = pickle.loads(pickle.dumps(RefusedOriginalError("no", "alice", "root")))
    assert (refused.kind, refused.role, refused.original) == (ErrorKind.FORBIDDEN, "alice", "root")
