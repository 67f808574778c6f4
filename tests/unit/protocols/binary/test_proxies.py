"""A proxy of Pulsar's protocol: whom it acts for, and that both must be allowed what is asked for."""

import itertools
from typing import Any, Final

import pytest
from tests.unit.protocols.binary.handlers import TOPIC, ClientSession, sessions

from penstock.model.names import NamespaceName
from penstock.model.policy import NamespacePolicies
from penstock.testing.credentials import Issuer
from penstock.wire.pulsar_pb2 import (
    AuthData,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSubscribe,
    FeatureFlags,
    ServerError,
)

pytestmark = pytest.mark.anyio

issuer: Final = Issuer()
BOTH: Final = ("produce", "consume")
# `may` and `other` may use the namespace, `none` may nothing; so of the proxies.
SETTINGS: Final = issuer.settings(
    super_users=("boss",),
    proxy_roles=("proxy", "gateway", "blind"),
    permissions={"public/default": {"proxy": BOTH, "gateway": BOTH, "may": BOTH, "other": BOTH}},
)


def hello(role: str, original: str | None = None, **fields: Any) -> CommandConnect:
    fields.setdefault("auth_data", issuer.token(role).encode())
    if original is not None:
        fields["original_principal"] = original
    return CommandConnect(
        client_version="test",
        protocol_version=21,
        auth_method_name="token",
        feature_flags=FeatureFlags(supports_auth_refresh=True),
        **fields,
    )


def forwarded(role: str) -> dict[str, str]:
    return {"original_auth_method": "token", "original_auth_data": issuer.token(role)}


def refused(answer: Any) -> ServerError:
    assert isinstance(answer, CommandError), answer
    return answer.error


def producer(**fields: Any) -> CommandProducer:
    return CommandProducer(**{"producer_id": 1, "topic": TOPIC, "request_id": 5, **fields})


def subscribe(**fields: Any) -> CommandSubscribe:
    given = {"topic": TOPIC, "subscription": "s", "request_id": 7, "subType": 1, "consumer_id": 1, **fields}
    return CommandSubscribe(**given)


@pytest.mark.parametrize(
    ("role", "original", "connects"),
    [
        ("may", None, True),
        ("may", "", True),
        ("may", "other", False),  # no proxy
        ("may", "may", False),
        ("may", "proxy", False),
        ("boss", "may", False),  # a super user is no proxy either
        ("proxy", None, False),  # a proxy is nobody itself
        ("proxy", "", False),
        ("proxy", "  ", False),
        ("proxy", "proxy", False),
        ("proxy", "gateway", False),
        ("proxy", "may", True),
        ("proxy", "none", True),  # and may do nothing
        ("blind", "may", True),
    ],
)
async def test_who_may_name_whom(role: str, original: str | None, connects: bool) -> None:
    async with sessions(auth=SETTINGS) as (one,):
        answer = await one.ask(hello(role, original))
        assert isinstance(answer, CommandConnected) is connects, answer
        assert one.output.closed is not connects
        if not connects:
            assert refused(answer) == ServerError.AuthorizationError


@pytest.mark.parametrize(("proxy", "original"), list(itertools.product(("proxy", "blind"), ("may", "none"))))
async def test_both_must_be_allowed(proxy: str, original: str) -> None:
    allowed = (proxy, original) == ("proxy", "may")
    async with sessions(auth=SETTINGS) as (one,):
        await one.ask(hello(proxy, original))
        for command in (producer(), subscribe()):
            answer = await one.ask(command)
            assert isinstance(answer, CommandError) is not allowed, answer
            if not allowed:
                assert refused(answer) == ServerError.AuthorizationError
                assert (
                    f"role '{'blind' if proxy == 'blind' and original == 'may' else original}'"
                    in answer.message
                )
        found = await one.ask(CommandLookupTopic(topic=TOPIC, request_id=9))
        assert (found.response == CommandLookupTopicResponse.Connect) is allowed
        parts = await one.ask(CommandPartitionedTopicMetadata(topic=TOPIC, request_id=9))
        assert (parts.response == 0) is allowed


async def test_a_super_user_through_a_proxy_has_the_proxys_rights() -> None:
    async with sessions(auth=SETTINGS, count=2) as (one, two):
        await one.ask(hello("blind", "boss"))
        assert refused(await one.ask(producer())) == ServerError.AuthorizationError
        await two.ask(hello("proxy", "boss"))
        assert not isinstance(await two.ask(producer()), CommandError)


async def test_without_authentication_it_is_passed_over() -> None:
    async with sessions() as (one,):
        answer = await one.ask(hello("may", "other", auth_data=b""))
        assert isinstance(answer, CommandConnected)


# -- forwarded credentials


@pytest.mark.parametrize(
    ("original", "credentials", "error"),
    [
        ("may", forwarded("may"), None),
        ("may", forwarded("other"), ServerError.AuthorizationError),
        (
            "may",
            {"original_auth_method": "token", "original_auth_data": "junk"},
            ServerError.AuthenticationError,
        ),
        ("may", {"original_auth_method": "none"}, None),
        ("may", {"original_auth_data": "something"}, ServerError.AuthenticationError),
        (None, forwarded("may"), ServerError.AuthorizationError),
    ],
)
async def test_forwarded_credentials_are_verified(
    original: str | None, credentials: dict[str, str], error: "ServerError | None"
) -> None:
    async with sessions(auth=SETTINGS) as (one,):
        answer = await one.ask(hello("proxy", original, **credentials))
        if error is None:
            assert isinstance(answer, CommandConnected), answer
        else:
            assert refused(answer) == error


async def test_forwarded_credentials_of_who_is_no_proxy_are_refused() -> None:
    async with sessions(auth=SETTINGS) as (one,):
        answer = await one.ask(hello("may", None, **forwarded("other")))
        assert refused(answer) == ServerError.AuthorizationError


def ending(one: ClientSession, role: str, after_ms: int) -> str:
    return issuer.token(role, exp=(one.bench.clock.now_ms() + after_ms) / 1000)


async def test_the_connection_ends_with_the_first_of_both_and_either_can_be_renewed() -> None:
    settings = issuer.settings(
        leeway_s=0, proxy_roles=("proxy",), permissions={"public/default": {"proxy": BOTH, "may": BOTH}}
    )
    async with sessions(auth=settings) as (one,):
        data = ending(one, "proxy", 1_000_000).encode()
        shown = {"original_auth_method": "token", "original_auth_data": ending(one, "may", 100_000)}
        assert isinstance(await one.ask(hello("proxy", "may", auth_data=data, **shown)), CommandConnected)

        await one.bench.clock.advance(80_000)
        (challenge,) = await one.heard()
        assert challenge.challenge.auth_method_name == "token"
        one.say(_response(ending(one, "may", 2_000_000)))
        assert await one.heard() == []
        await one.bench.clock.advance(800_000)  # the first token of `may` is long over
        assert not one.output.closed

        one.say(_response(ending(one, "proxy", 10_000_000)))
        assert await one.heard() == []
        await one.bench.clock.advance(500_000)  # and now that of the proxy
        await one.heard()
        assert not one.output.closed

        one.say(_response(ending(one, "somebody", 10_000_000)))
        assert refused((await one.heard())[0]) == ServerError.AuthenticationError
        assert one.output.closed


def _response(token: str) -> CommandAuthResponse:
    return CommandAuthResponse(response=AuthData(auth_method_name="token", auth_data=token.encode()))


async def test_the_connection_ends_with_the_originals_credentials() -> None:
    settings = issuer.settings(leeway_s=0, proxy_roles=("proxy",))
    async with sessions(auth=settings) as (one,):
        shown = {"original_auth_method": "token", "original_auth_data": ending(one, "may", 100_000)}
        await one.ask(hello("proxy", "may", **shown))
        await one.bench.clock.advance(100_001)
        assert one.output.closed


# -- single commands that name somebody


@pytest.mark.parametrize(
    ("role", "connected_for", "named", "found"),
    [
        ("proxy", "may", "other", True),
        ("proxy", "may", "none", False),
        ("proxy", "none", "may", False),  # it opens nothing that the connection may not have
        ("proxy", "may", "gateway", False),
        ("blind", "may", "other", False),
        ("may", None, "other", False),
        ("may", None, "", True),
    ],
)
async def test_lookups_name_originals_of_their_own(
    role: str, connected_for: str | None, named: str, found: bool
) -> None:
    async with sessions(auth=SETTINGS) as (one,):
        await one.ask(hello(role, connected_for))
        answer = await one.ask(CommandLookupTopic(topic=TOPIC, request_id=3, original_principal=named))
        assert (answer.response == CommandLookupTopicResponse.Connect) is found
        assert found or answer.error == ServerError.AuthorizationError
        answer = await one.ask(
            CommandPartitionedTopicMetadata(topic=TOPIC, request_id=4, original_principal=named)
        )
        assert (answer.response == 0) is found
        assert found or answer.error == ServerError.AuthorizationError
        assert not one.output.closed


async def test_lookups_verify_credentials() -> None:
    async with sessions(auth=SETTINGS) as (one,):
        await one.ask(hello("proxy", "may"))
        named = {"topic": TOPIC, "request_id": 3, "original_principal": "other"}
        good = await one.ask(CommandLookupTopic(**named, **forwarded("other")))
        assert good.response == CommandLookupTopicResponse.Connect
        bad = await one.ask(CommandLookupTopic(**named, **forwarded("may")))
        assert (bad.response, bad.error) == (
            CommandLookupTopicResponse.Failed,
            ServerError.AuthorizationError,
        )


# -- what lasts


@pytest.mark.parametrize("loser", ["proxy", "may"])
async def test_either_ones_revoked_permission_ends_what_lasts(loser: str) -> None:
    settings = issuer.settings(proxy_roles=("proxy",))
    async with sessions(auth=settings) as (one,):
        namespaces, name = one.bench.broker.namespaces, NamespaceName("public", "default")
        await namespaces.update(name, NamespacePolicies(permissions={"proxy": BOTH, "may": BOTH}))
        await one.ask(hello("proxy", "may"))
        await one.ask(producer())
        await one.ask(subscribe())
        left = {role: BOTH for role in ("proxy", "may") if role != loser}
        await namespaces.update(name, NamespacePolicies(permissions=left))
        closed = {type(command).__name__ for command in await one.heard()}
        assert closed == {"CommandCloseProducer", "CommandCloseConsumer"}
        assert not one.session.producers
        assert not one.session.consumers


async def test_what_is_made_belongs_to_the_original() -> None:
    async with sessions(auth=SETTINGS) as (one,):
        await one.ask(hello("proxy", "may"))
        await one.ask(producer())
        await one.ask(subscribe())
        made = one.session.producers[1].producer
        assert (made.owner, made.proxy) == ("may", "proxy")
        consumer = one.session.consumers[1].consumer
        assert (consumer.owner, consumer.proxy) == ("may", "proxy")
