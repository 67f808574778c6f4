import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.protocols.limits import Limits


async def test_namespaces_and_tenants() -> None:
    async with AdminServer.open() as server:
        assert await server.get("/admin/v2/tenants") == ["penstock", "public"]
        await server.put("/admin/v2/tenants/acme")
        await server.put("/admin/v2/namespaces/acme/shop", {"deduplicationEnabled": True, "unknown": 1})
        await server.put("/admin/v2/namespaces/acme/shop", status=409)
        assert await server.get("/admin/v2/namespaces/acme") == ["acme/shop"]
        assert (await server.get("/admin/v2/namespaces/acme/shop"))["deduplicationEnabled"] is True
        await server.put("/admin/v2/persistent/acme/shop/t")
        await server.delete("/admin/v2/namespaces/acme/shop", 409)
        await server.delete("/admin/v2/tenants/acme", 409)
        await server.delete("/admin/v2/namespaces/acme/shop", force="true")
        await server.get("/admin/v2/namespaces/acme/shop", 404)
        await server.get("/admin/v2/namespaces/acme/shop/topics", 404)
        await server.delete("/admin/v2/tenants/acme")
        await server.get("/admin/v2/namespaces/acme", 404)
        await server.put("/admin/v2/tenants/new", {"allowedClusters": ["standalone"]})
        await server.put("/admin/v2/tenants/new", status=409)
        assert (await server.get("/admin/v2/tenants/new"))["allowedClusters"] == ["standalone"]
        await server.put("/admin/v2/tenants/a%2Fb", status=412)


async def test_what_pulsar_s_tools_ask_first() -> None:
    async with AdminServer.open() as server:
        assert await server.get("/admin/v2/clusters") == ["standalone"]
        assert (await server.client.get("/admin/v2/brokers/health")).text == "ok"
        assert (await server.client.get("/admin/v2/brokers/version")).text.startswith("penstock-")
        assert await server.get("/admin/v2/brokers/standalone") == ["penstock"]
        server.context.https_url, server.context.pulsar_url = "https://inside:8443", "pulsar://inside:6650"
        assert await server.get("/admin/v2/clusters/standalone") == {
            "serviceUrl": "http://penstock",
            "serviceUrlTls": "https://penstock:8443",
            "brokerServiceUrl": "pulsar://penstock:6650",
        }
        await server.get("/admin/v2/clusters/other", 404)
        found = await server.get("/lookup/v2/topic/persistent/public/default/t")
        assert found["httpUrl"] == "http://penstock"
        assert "brokerUrlTls" in found
        await server.get("/lookup/v2/topic/persistent/public/default/t-partition-9", 404)


async def test_pages() -> None:
    async with AdminServer.open() as server:
        assert (await server.get("/"))["docs"] == "/docs"
        page = await server.client.get("/", headers={"accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert (await server.get("/health/live")) == {"status": "ok"}
        assert (await server.get("/health/ready")) == {"status": "ready"}
        document = await server.get("/openapi.json")
        assert document["openapi"].startswith("3.1")
        for methods in document["paths"].values():
            for operation in methods.values():
                assert {"408", "431"} <= operation["responses"].keys()  # by the server, whatever was asked
        assert "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/stats" in document["paths"]
        assert (await server.get("/asyncapi.json"))["channels"]
        docs = await server.client.get("/docs")
        assert "/console/static/js/main.js" in docs.text
        assert (await server.client.head("/docs")).headers["content-length"] == str(len(docs.content))
        assert (await server.post("/docs", status=405))["error_code"] == 40501
        assert (await server.get("/nowhere", 404))["error_code"] == 40400


async def test_a_server_that_drains_takes_no_work() -> None:
    async with AdminServer.open() as server:
        server.context.draining = True
        assert (await server.put(f"{ADMIN}/t", status=503))["error_code"] == 50301
        assert (await server.get("/health/ready", 503))["error_code"] == 50301
        await server.get("/health/live")


@pytest.mark.parametrize("size", [1001, 100_000])
async def test_a_body_too_large_is_413(size: int) -> None:
    async with AdminServer.open(limits=Limits(max_request_bytes=1000)) as server:
        response = await server.client.put(f"{ADMIN}/t", content=b"x" * size)
        assert response.status_code == 413
        assert response.json()["error_code"] == 41301
