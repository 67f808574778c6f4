"""Who acts for whom before a broker that asks who comes, and what they may do."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import pytest
from tests.support.pulsar_broker import NUMBERED, PulsarCluster, standalone

from penstock.broker.settings import ClusterSettings
from penstock.model.secret import Secret
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

ISSUER = Issuer()
TOPIC = "/topics/public/default/roles"
TOKENS = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    """A broker that takes the tokens of these tests and lets `app` use public/default, and `penstock` act for others."""
    admin = ISSUER.token("admin")
    settings = {
        **NUMBERED,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": TOKENS,
        "tokenSecretKey": f"data:;base64,{b64encode(ISSUER.key.encode()).decode()}",
        "superUserRoles": "admin,penstock,penstock-itself",
        "proxyRoles": "penstock",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{admin}",
    }
    with standalone(tmp_path_factory.mktemp("roles"), settings, admin) as found:
        for actions in (["produce", "consume"],):
            found.admin("POST", "namespaces/public/default/permissions/app", json=actions)
        yield found


def statuses(cluster: PulsarCluster, act_for: Literal["principal", "token", "server"]) -> dict[str, Any]:
    """What Penstock, which lets both roles do everything, answers to each that publishes and subscribes."""
    engine = ClusterSettings(
        url=cluster.service_url,
        admin_url=cluster.admin_url,
        token=Secret(ISSUER.token("penstock")),
        own_principal="penstock-itself",
        act_for=act_for,
    )
    grants = ("produce", "consume")
    auth = ISSUER.settings(permissions={"public/default": {"app": grants, "other": grants}})
    found: dict[str, Any] = {}
    with running(engine=engine, auth=auth) as server, httpx.Client(base_url=server.url, timeout=60) as rest:
        for role in ("app", "other"):
            headers = ISSUER.headers(role)
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


def test_the_caller_is_the_original_principal(cluster: PulsarCluster) -> None:
    assert statuses(cluster, "principal") == {"app": [200, 200, 200], "other": [403, 403, 403]}


def test_the_token_of_the_caller_is_passed_on(cluster: PulsarCluster) -> None:
    assert statuses(cluster, "token") == {"app": [200, 200, 200], "other": [403, 403, 403]}


def test_the_server_acts_for_all(cluster: PulsarCluster) -> None:
    assert statuses(cluster, "server") == {"app": [200, 200, 200], "other": [200, 200, 200]}


def test_a_server_that_the_cluster_does_not_know(cluster: PulsarCluster) -> None:
    engine = ClusterSettings(url=cluster.service_url, admin_url=cluster.admin_url, token=Secret("nonsense"))
    with pytest.raises(Exception, match="refuses the credentials of this server"), running(engine=engine):
        pass
