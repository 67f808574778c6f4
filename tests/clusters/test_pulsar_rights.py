"""Who may ask a real broker for what through Penstock, beside what the broker itself lets them."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from tests.support.pulsar_secure import SecureCluster
from tests.support.waiting import until

from penstock.model.secret import Secret
from penstock.protocols.admin.cluster_operations import OPERATIONS, Right
from penstock.testing.server import Address, running

BUNDLE: Final = "0x00000000_0xffffffff"
NAMES: Final = {
    "domain": "persistent",
    "namespace": "n",
    "topic": "t",
    "topic_of_schemas": "t",
    "subscription": "s",
    "cursor": "s",
    "granted": "s",
    "role": "r",
    "bundle": BUNDLE,
    "key": "k",
    "value": "v",
    "group": "g",
    "version": "0",
    "seconds": "100",
    "count": "1",
    "position": "1",
    "timestamp": "0",
    "ledger": "1",
    "entry": "1",
}
# As bodies of what is set: the first that is read decides, and reading it comes before or after the check of rights.
BODIES: Final = (b"{}", b"[]", b"1", b"true", b'"x"', b"")
# A broker never answers it for a topic that it has.
UNANSWERED: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/backlog"
Act = Literal["principal", "token", "server"]


class Tenant:
    """A tenant of the test's own, which `boss` administers, with the namespace `n`, the topic `t` and its subscription `s`."""

    def __init__(self, cluster: SecureCluster) -> None:
        self.cluster = cluster
        self.name = f"t{uuid4().hex[:10]}"
        self.topic = f"persistent://{self.name}/n/t"
        self.info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        cluster.plain.admin("PUT", f"tenants/{self.name}", json=self.info)
        with httpx.Client(base_url=cluster.plain.admin_url, timeout=60) as broker:
            self.restore(broker)

    def restore(self, broker: httpx.Client) -> None:
        """What the last operation may have deleted or changed."""
        headers = self.cluster.issuer.headers("admin")
        bundles = {"bundles": {"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]}}
        broker.put(f"/admin/v2/namespaces/{self.name}/n", headers=headers, json=bundles)
        broker.put(f"/admin/v2/persistent/{self.name}/n/t", headers=headers)
        broker.put(f"/admin/v2/persistent/{self.name}/n/t/subscription/s", headers=headers)

    def path(self, template: str) -> str:
        names = {**NAMES, "tenant": self.name}
        return re.sub(r"{(\w+)}", lambda match: names[match[1]], template)


@pytest.fixture
def tenant(secure_cluster: SecureCluster) -> Tenant:
    return Tenant(secure_cluster)


@contextmanager
def before(cluster: SecureCluster, act_for: Act = "server", **auth: Any) -> Iterator[Address]:
    """A server before the cluster. `root` and `admin` are its superusers: the brokers know the second."""
    engine = cluster.engine(
        token=Secret(cluster.issuer.token("penstock")), own_principal="penstock-itself", act_for=act_for
    )
    settings = cluster.issuer.settings(super_users=("root", "admin"), **auth)
    with running(engine=engine, auth=settings) as server:
        yield server


@pytest.mark.timeout(400)
def test_what_the_table_gives_to_administrators_of_a_tenant_is_theirs_at_the_broker(tenant: Tenant) -> None:
    cluster, refused, taken = tenant.cluster, set[str](), 0
    with httpx.Client(base_url=cluster.plain.admin_url, timeout=60) as broker:
        for template, operation in OPERATIONS.items():
            for method, right in operation.rights.items():
                if right is not Right.TENANT or template == UNANSWERED:
                    continue
                for body in BODIES:
                    headers = {**cluster.issuer.headers("boss"), "content-type": "application/json"}
                    answer = broker.request(
                        method, f"{tenant.path(template)}?key=k", headers=headers, content=body
                    )
                    if answer.status_code not in (400, 415, 500):
                        break
                taken += answer.status_code < 300
                if answer.status_code in (401, 403):
                    refused.add(f"{method} {template}: {answer.text[:200]}")
                tenant.restore(broker)
    assert refused == set()
    assert taken > 150  # the others are refused for what they say, not for who says it


def test_what_pulsar_keeps_for_superusers_is_refused_here_too(tenant: Tenant) -> None:
    base = f"/admin/v2/namespaces/{tenant.name}/n"
    kept = [
        ("PUT", f"/admin/v2/tenants/{tenant.name}x"),
        ("GET", "/admin/v2/tenants"),
        ("GET", "/admin/v2/clusters/standalone"),
        ("PUT", f"{base}/unload"),
        ("PUT", f"{base}/{BUNDLE}/unload"),
        ("PUT", f"{base}/{BUNDLE}/split"),
        ("POST", f"{base}/delayedDelivery"),
        ("DELETE", f"{base}/delayedDelivery"),
        ("GET", f"{base}/persistence/bookieAffinity"),
        ("POST", f"{base}/persistence/bookieAffinity"),
        ("DELETE", f"{base}/persistence/bookieAffinity"),
        ("POST", f"{base}/migration"),
        ("GET", f"/admin/v2/resource-quotas/{tenant.name}/n/{BUNDLE}"),
        ("GET", "/admin/v2/broker-stats/topics"),
    ]
    cluster = tenant.cluster
    headers = {**cluster.issuer.headers("boss"), "content-type": "application/json"}
    with (
        before(cluster) as server,
        httpx.Client(base_url=server.url, timeout=60, headers=headers) as through,
        httpx.Client(base_url=cluster.plain.admin_url, timeout=60, headers=headers) as direct,
    ):
        for method, path in kept:
            # A broker reads the body of a POST before it looks who sent it.
            content = (b"true" if "migration" in path else b"{}") if method == "POST" else b""
            refused = direct.request(method, path, content=content)
            assert refused.status_code in (401, 403), (method, path, refused.text)
            assert through.request(method, path, content=content).status_code == 403, (method, path)
        # These Pulsar leaves to the tenant's administrators; here they are the superusers'.
        for method in ("POST", "DELETE"):
            assert through.request(method, f"/admin/v2/tenants/{tenant.name}", json={}).status_code == 403
        assert through.get(f"/admin/v2/tenants/{tenant.name}").json() == tenant.info
        assert through.post(f"{base}/messageTTL", json=60).status_code == 204
        assert through.put(f"/admin/v2/namespaces/{tenant.name}/more").status_code == 204
        assert through.get(f"/admin/v2/namespaces/{tenant.name}").json() == [
            f"{tenant.name}/{name}" for name in ("more", "n")
        ]


def raw(server: Address, method: str, target: str, token: str, body: bytes = b"") -> int:
    """The status of a request whose target no client touches."""
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split(b" ", 2)[1])


def test_who_may_look_up_a_topic_gets_nowhere_else_by_its_path(tenant: Tenant) -> None:
    cluster, token = tenant.cluster, tenant.cluster.issuer.token("user")
    topic = f"{tenant.name}/n/t"
    mine = {"adminRoles": ["user"], "allowedClusters": ["standalone"]}
    with before(cluster, permissions={tenant.topic: {"user": ("consume",)}}) as server:
        assert raw(server, "GET", f"/lookup/v2/topic/persistent/{topic}", token) == 200
        assert raw(server, "GET", f"/admin/v2/schemas/{topic}/schema", token) == 404
        for dots in ("..", "%2e%2e", ".%2e"):
            up = f"/{dots}" * 7
            for base in (f"/lookup/v2/topic/persistent/{topic}", f"/admin/v2/schemas/{topic}/schema"):
                body = httpx.Request("POST", "http://x", json=mine).content
                assert raw(server, "POST", f"{base}{up}/admin/v2/tenants/{tenant.name}", token, body) == 400
                assert raw(server, "PUT", f"{base}{up}/admin/v2/tenants/{tenant.name}x", token, body) == 400
                assert raw(server, "DELETE", f"{base}{up}/admin/v2/persistent/{topic}", token) == 400
        boss = cluster.issuer.token("boss")
        for away in ("..", "%2e%2e"):
            path = f"/admin/v2/namespaces/{tenant.name}/{away}/public/default/retention"
            assert raw(server, "DELETE", path, boss) == 400
    assert cluster.plain.admin("GET", f"tenants/{tenant.name}").json() == tenant.info
    assert f"{tenant.name}x" not in cluster.plain.admin("GET", "tenants").json()
    assert cluster.plain.admin("GET", f"persistent/{tenant.name}/n").json() == [tenant.topic]


@pytest.mark.parametrize("act_for", ["principal", "token"])
def test_the_broker_is_told_who_asks(tenant: Tenant, act_for: Act) -> None:
    cluster = tenant.cluster
    path = f"/admin/v2/namespaces/{tenant.name}/n/messageTTL"
    with before(cluster, act_for) as server, httpx.Client(base_url=server.url, timeout=60) as rest:

        def ask(role: str, method: str, path: str, **more: Any) -> httpx.Response:
            return rest.request(method, path, headers=cluster.issuer.headers(role), **more)

        assert ask("boss", "POST", path, json=60).status_code == 204
        assert ask("boss", "GET", path).json() == 60
        assert ask("boss", "PUT", f"/admin/v2/namespaces/{tenant.name}/n/unload").status_code == 403
        assert ask("admin", "PUT", f"/admin/v2/namespaces/{tenant.name}/n/unload").status_code == 204
        # A superuser here whom the brokers do not know is nobody there.
        refused = ask("root", "GET", path)
        assert refused.status_code == 403
        assert refused.json()["reason"].startswith("Unauthorized to validateNamespacePolicyOperation")
        assert ask("root", "GET", "/health/ready").status_code == 200
        named = {**cluster.issuer.headers("boss"), "X-Original-Principal": "admin"}
        assert rest.get("/admin/v2/tenants", headers=named).status_code == 403


def test_permissions_of_subscriptions_and_the_prefix_mode(tenant: Tenant) -> None:
    cluster = tenant.cluster
    topic = f"/topics/{tenant.name}/n/t"
    grants = {f"{tenant.name}/n": {"app": ("consume",), "other": ("consume",)}}
    with before(cluster, permissions=grants) as server, httpx.Client(base_url=server.url, timeout=60) as rest:

        def administer(method: str, path: str, **more: Any) -> None:
            headers = cluster.issuer.headers("boss")
            answer = rest.request(
                method, f"/admin/v2/namespaces/{tenant.name}/n/{path}", headers=headers, **more
            )
            assert answer.status_code == 204, answer.text

        def subscribes(role: str, subscription: str) -> bool:
            headers = cluster.issuer.headers(role)
            made = rest.post(f"{topic}/subscription/{quote(subscription, safe='')}", headers=headers)
            assert made.status_code in (200, 403), made.text
            if made.status_code == 200:
                instance = f"{topic}/subscription/{quote(subscription, safe='')}/consumer/{made.json()['id']}"
                assert rest.delete(instance, headers=headers).status_code == 204
            else:
                assert "use the subscription" in made.json()["message"]
            return made.status_code == 200

        def sees(role: str, subscription: str) -> bool:
            cursor = f"{topic}/subscription/{quote(subscription, safe='')}/cursor"
            return rest.get(cursor, headers=cluster.issuer.headers(role)).status_code == 200

        assert subscribes("app", "billing/1")
        assert subscribes("other", "billing/1")
        assert subscribes("other", "another")
        administer("POST", "permissions/subscription/billing%2F1", json=["app"])
        until(lambda: not sees("other", "billing/1"))
        assert not subscribes("other", "billing/1")
        assert subscribes("app", "billing/1")
        assert subscribes("other", "another")
        administer("DELETE", "permissions/billing%2F1/app")
        until(lambda: sees("other", "billing/1"))
        assert subscribes("other", "billing/1")
        administer("POST", "subscriptionAuthMode", json="Prefix")
        until(lambda: not sees("other", "another"))
        assert not subscribes("other", "another")
        assert subscribes("other", "other-1")
        assert not subscribes("app", "other-1")


@pytest.mark.parametrize("name", ["a+b", "a b", "a%2Bb", "a%2Fb", "a%b", "é"])
def test_a_name_is_the_same_at_the_broker(tenant: Tenant, name: str) -> None:
    """Of topics and subscriptions, whatever decodes it how often."""
    cluster, quoted = tenant.cluster, quote(name, safe="")
    topic = f"{tenant.name}/n/{quoted}"
    with (
        before(cluster) as server,
        httpx.Client(base_url=server.url, timeout=60, headers=cluster.issuer.headers("root")) as rest,
    ):
        assert rest.put(f"/admin/v2/persistent/{topic}").status_code == 204
        listed = rest.get(f"/admin/v2/persistent/{tenant.name}/n").json()
        assert f"persistent://{tenant.name}/n/{name}" in listed
        assert rest.get(f"/lookup/v2/topic/persistent/{topic}").status_code == 200
        made = rest.post(f"/topics/{topic}/subscription/{quoted}", json={"initial_position": "earliest"})
        assert made.status_code == 200, made.text
        subscriptions = f"/admin/v2/persistent/{topic}/subscriptions"
        assert rest.get(subscriptions).json() == [name]
        assert rest.get(f"/topics/{topic}/subscription/{quoted}/cursor").status_code == 200
        sought = rest.post(
            f"/topics/{topic}/subscription/{quoted}/cursor", json={"seek": {"publish_time": 0}}
        )
        assert sought.status_code in (200, 204, 400, 422), sought.text
        instance = f"/topics/{topic}/subscription/{quoted}/consumer/{made.json()['id']}"
        assert rest.delete(instance).status_code == 204
        gone = rest.delete(f"/admin/v2/persistent/{topic}/subscription/{quote(quoted, safe='')}")
        assert gone.status_code == 204, gone.text
        assert rest.get(subscriptions).json() == []
        posted = rest.post(
            f"/admin/v2/schemas/{tenant.name}/n/{quote(quoted, safe='')}/schema",
            json={"type": "STRING", "schema": "", "properties": {}},
        )
        assert posted.status_code == 200, posted.text
        stats = f"/admin/v2/persistent/{topic}/internalStats"
        until(lambda: bool(rest.get(stats).json()["schemaLedgers"]))
        assert rest.delete(f"/admin/v2/persistent/{topic}").status_code == 204


def test_error_pages_of_the_broker_are_json(tenant: Tenant) -> None:
    headers = tenant.cluster.issuer.headers("root")
    with before(tenant.cluster) as server, httpx.Client(base_url=server.url, headers=headers) as rest:
        for method, path, status, phrase in (
            ("GET", "/admin/v2/nothing", 404, "Not Found"),
            ("PATCH", "/admin/v2/clusters", 405, "Method Not Allowed"),
            ("POST", "/admin/v2/brokers/version", 405, "Method Not Allowed"),
        ):
            answer = rest.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
            assert answer.json()["reason"] == answer.json()["message"] == f"the cluster answers: {phrase}"
