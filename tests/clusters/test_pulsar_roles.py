"""Who acts for whom before a broker that asks who comes, and what they may do."""

from typing import Any, Literal

import httpx
from tests.support.pulsar_secure import SecureCluster

from penstock.model.secret import Secret
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

TOPIC = "/topics/public/default/roles"


def statuses(
    cluster: SecureCluster, act_for: Literal["principal", "token", "server"], **more: Any
) -> dict[str, Any]:
    """What Penstock, which lets both roles do everything, answers to each that publishes and subscribes."""
    issuer = cluster.issuer
    engine = cluster.engine(
        token=Secret(issuer.token("penstock")),
        **{"own_principal": "penstock-itself", "act_for": act_for, **more},
    )
    grants = ("produce", "consume")
    auth = issuer.settings(permissions={"public/default": {"app": grants, "other": grants}})
    found: dict[str, Any] = {}
    with running(engine=engine, auth=auth) as server, httpx.Client(base_url=server.url, timeout=60) as rest:
        for role in ("app", "other"):
            headers = issuer.headers(role)
            body = {"messages": [{"value": role}]}
            published = rest.post(TOPIC, json=body, headers=headers)
            again = rest.post(TOPIC, json=body, headers=headers)
            subscribed = rest.post(f"{TOPIC}/subscription/{act_for}-{role}", headers=headers)
            # Kafka REST posts for the caller, too; what it reads, and keeps of positions, is the server's own.
            log = "/kafka/topics/roles/0"
            posted = rest.post(log, content=b"bytes", headers=headers)
            assert posted.status_code == (204 if published.status_code == 200 else 403)
            assert rest.get(log, headers={**headers, "range": "bytes=0-"}).status_code == 206
            found[role] = [one.status_code for one in (published, again, subscribed)]
    return found


def test_the_caller_is_the_original_principal(secure_cluster: SecureCluster) -> None:
    assert statuses(secure_cluster, "principal") == {"app": [200, 200, 200], "other": [403, 403, 403]}


def test_the_token_of_the_caller_is_passed_on(secure_cluster: SecureCluster) -> None:
    assert statuses(secure_cluster, "token") == {"app": [200, 200, 200], "other": [403, 403, 403]}


def test_the_server_acts_for_all(secure_cluster: SecureCluster) -> None:
    assert statuses(secure_cluster, "server") == {"app": [200, 200, 200], "other": [200, 200, 200]}


def refusals(cluster: SecureCluster, issuer: Issuer, **engine: Any) -> list[tuple[int, str]]:
    """What a caller that Penstock knows is answered when it publishes and subscribes."""
    auth = issuer.settings(permissions={"public/default": {"app": ("produce", "consume")}})
    headers = issuer.headers("app")
    with (
        running(engine=cluster.engine(**engine), auth=auth) as server,
        httpx.Client(base_url=server.url, timeout=60) as rest,
    ):
        answers = [
            rest.post(TOPIC, json={"messages": [{"value": "x"}]}, headers=headers),
            rest.post(f"{TOPIC}/subscription/refused", headers=headers),
        ]
        assert rest.get("/health/ready").status_code == 200
    return [(one.status_code, one.json()["message"]) for one in answers]


def test_a_token_that_the_cluster_does_not_take_is_its_callers(secure_cluster: SecureCluster) -> None:
    """Penstock takes tokens of another key."""
    other = Issuer("another key of tests, as long as HS256, HS384 and HS512 want it to be: 64")
    for status, message in refusals(secure_cluster, other, act_for="token"):
        assert status == 401
        assert message.endswith("the cluster refuses the token of 'app': Failed to authenticate"), message


def test_a_role_that_is_no_proxy_cannot_act_for_callers(secure_cluster: SecureCluster) -> None:
    for status, message in refusals(secure_cluster, secure_cluster.issuer, act_for="principal"):
        assert status == 403
        assert "does not let this server act for 'app'" in message, message
        assert "engine.act_for" in message, message
