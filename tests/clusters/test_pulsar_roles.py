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


def test_a_proxy_does_not_lend_its_token_to_whom_it_acts_for(secure_cluster: SecureCluster) -> None:
    """The proxy is a superuser of the cluster and of Penstock; `app` may publish, `other` may not."""
    issuer = secure_cluster.issuer
    grants = ("produce", "consume")
    auth = issuer.settings(
        super_users=("admin",),
        proxy_roles=("admin",),
        permissions={"public/default": {"app": grants, "other": grants}},
    )
    engine = secure_cluster.engine(act_for="token")
    with running(engine=engine, auth=auth) as server, httpx.Client(base_url=server.url, timeout=60) as rest:

        def answers(headers: dict[str, str]) -> list[tuple[int, int]]:
            made = (
                rest.post(TOPIC, json={"messages": [{"value": "x"}]}, headers=headers),
                rest.post(f"{TOPIC}/subscription/proxied", headers=headers),
            )
            return [(one.status_code, one.json().get("error_code", 0)) for one in made]

        own = answers({**issuer.headers("app"), "X-Original-Principal": "app"})
        assert own == [(200, 0), (200, 0)]
        for role in ("app", "other"):  # also while `app` has connections
            proxied = answers({**issuer.headers("admin"), "X-Original-Principal": role})
            assert proxied == [(401, 40101), (401, 40101)]
        assert answers(issuer.headers("other")) == [(403, 40301), (403, 40301)]


def test_each_token_of_a_role_is_its_own_caller_to_the_cluster(secure_cluster: SecureCluster) -> None:
    """Penstock calls both `team`; to the cluster one is `app`, and the other is `other`, which may do nothing."""
    issuer = secure_cluster.issuer
    auth = issuer.settings(
        role_claim="team", permissions={"public/default": {"team": ("produce", "consume")}}
    )
    engine = secure_cluster.engine(act_for="token")
    may, may_not = (issuer.headers(role, team="team") for role in ("app", "other"))
    body = {"messages": [{"value": "x"}]}
    with running(engine=engine, auth=auth) as server, httpx.Client(base_url=server.url, timeout=60) as rest:

        def status(headers: dict[str, str], path: str = "", json: object = body) -> int:
            return rest.post(f"{TOPIC}-of-a-team{path}", json=json, headers=headers).status_code

        for _ in range(3):
            assert status(may) == 200
            assert status(may_not) == 403
        made = rest.post(f"{TOPIC}-of-a-team/subscription/s", headers=may)
        assert made.status_code == 200, made.text
        instance = f"/subscription/s/consumers/{made.json()['id']}"
        assert status(may_not, "/subscription/s", {}) == 403
        path = f"{TOPIC}-of-a-team{instance}"
        other = rest.get(f"{path}/messages", headers=may_not)
        assert (other.status_code, other.json()["error_code"]) == (403, 40301)
        assert "created with another token" in other.json()["message"]
        assert rest.get(f"{path}/messages", params={"timeout": 0}, headers=may).status_code == 200
        assert status(may) == 200  # the other's refusals did not end its connection
