import pytest
from tests.integration.admin_harness import ADMIN, office

from penstock.protocols.limits import Limits


async def test_namespaces_and_tenants() -> None:
    async with office() as at:
        assert await at.get("/admin/v2/tenants") == ["penstock", "public"]
        await at.put("/admin/v2/tenants/acme")
        await at.put("/admin/v2/namespaces/acme/shop", {"deduplicationEnabled": True, "unknown": 1})
        await at.put("/admin/v2/namespaces/acme/shop", status=409)
        assert await at.get("/admin/v2/namespaces/acme") == ["acme/shop"]
        assert (await at.get("/admin/v2/namespaces/acme/shop"))["deduplicationEnabled"] is True
        await at.put("/admin/v2/persistent/acme/shop/t")
        await at.delete("/admin/v2/namespaces/acme/shop", 409)
        await at.delete("/admin/v2/tenants/acme", 409)
        await at.delete("/admin/v2/namespaces/acme/shop", force="true")
        await at.get("/admin/v2/namespaces/acme/shop", 404)
        await at.get("/admin/v2/namespaces/acme/shop/topics", 404)
        await at.delete("/admin/v2/tenants/acme")
        await at.get("/admin/v2/namespaces/acme", 404)
        await at.put("/admin/v2/tenants/new", {"allowedClusters": ["standalone"]})
        await at.put("/admin/v2/tenants/new", status=409)
        assert (await at.get("/admin/v2/tenants/new"))["allowedClusters"] == ["standalone"]
        await at.put("/admin/v2/tenants/a%2Fb", status=412)


async def test_what_pulsar_s_tools_ask_first() -> None:
    async with office() as at:
        assert await at.get("/admin/v2/clusters") == ["standalone"]
        assert (await at.client.get("/admin/v2/brokers/health")).text == "ok"
        assert (await at.client.get("/admin/v2/brokers/version")).text.startswith("penstock-")
        assert await at.get("/admin/v2/brokers/standalone") == ["office"]
        at.context.https_url, at.context.pulsar_url = "https://inside:8443", "pulsar://inside:6650"
        assert await at.get("/admin/v2/clusters/standalone") == {
            "serviceUrl": "http://office",
            "serviceUrlTls": "https://office:8443",
            "brokerServiceUrl": "pulsar://office:6650",
        }
        await at.get("/admin/v2/clusters/other", 404)
        found = await at.get("/lookup/v2/topic/persistent/public/default/t")
        assert found["httpUrl"] == "http://office"
        assert "brokerUrlTls" in found
        await at.get("/lookup/v2/topic/persistent/public/default/t-partition-9", 404)


async def test_pages() -> None:
    async with office() as at:
        assert (await at.get("/"))["docs"] == "/docs"
        page = await at.client.get("/", headers={"accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert (await at.get("/health/live")) == {"status": "ok"}
        assert (await at.get("/health/ready")) == {"status": "ready"}
        document = await at.get("/openapi.json")
        assert document["openapi"].startswith("3.1")
        for methods in document["paths"].values():
            for operation in methods.values():
                assert {"408", "431"} <= operation["responses"].keys()  # by the server, whatever was asked
        assert "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/stats" in document["paths"]
        assert (await at.get("/asyncapi.json"))["channels"]
        docs = await at.client.get("/docs")
        assert "terminate" in docs.text
        assert (await at.client.head("/docs")).headers["content-length"] == str(len(docs.content))
        assert (await at.post("/docs", status=405))["error_code"] == 40501
        assert (await at.get("/nowhere", 404))["error_code"] == 40400


async def test_a_server_that_drains_takes_no_work() -> None:
    async with office() as at:
        at.context.draining = True
        assert (await at.put(f"{ADMIN}/t", status=503))["error_code"] == 50301
        assert (await at.get("/health/ready", 503))["error_code"] == 50301
        await at.get("/health/live")


@pytest.mark.parametrize("size", [1001, 100_000])
async def test_a_body_too_large_is_413(size: int) -> None:
    async with office(limits=Limits(max_request_bytes=1000)) as at:
        response = await at.client.put(f"{ADMIN}/t", content=b"x" * size)
        assert response.status_code == 413
        assert response.json()["error_code"] == 41301
