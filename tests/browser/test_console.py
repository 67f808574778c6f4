"""The console's stories, in a real browser against a real server."""

import json
import re
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from penstock.testing.server import Address

from .conftest import OUTPUT

AXE = Path(__file__).parents[1] / "js" / "node_modules" / "axe-core" / "axe.min.js"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "product", "type": "string"},
        {"name": "price", "type": "double"},
    ],
}


def view(topic: str, tab: str = "messages", values: str = "") -> str:
    """The URL of a topic's view."""
    return f"/console#/topic/{quote(f'persistent://public/default/{topic}', safe=':')}/{tab}{values}"


@pytest.fixture(scope="module", autouse=True)
def data(server: Address) -> None:
    """Orders with a schema and a subscription, and a topic of three partitions."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        orders = [
            {
                "value": {"id": n, "product": "tea" if n % 2 else "coffee", "price": n / 2},
                "key": f"k{n}",
                "properties": {"lang": "en"},
            }
            for n in range(120)
        ]
        body = {"value_schema": {"type": "JSON", "schema": SCHEMA}, "messages": orders}
        assert client.post("/topics/public/default/orders", json=body).status_code == 200
        admin = "/admin/v2/persistent/public/default"
        assert client.put(f"{admin}/orders/subscription/billing", json="earliest").status_code == 204
        assert client.put(f"{admin}/parts/partitions", json=3).status_code == 204
        parts = {"messages": [{"value": f"part {n}", "key": str(n)} for n in range(9)]}
        assert client.post("/topics/public/default/parts", json=parts).status_code == 200


def test_overview_leads_to_the_busiest_topics(page: Page) -> None:
    page.goto("/console")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("link", name="persistent://public/default/orders").click()
    expect(page.get_by_role("heading", name="public/default/orders")).to_be_visible()
    page.screenshot(path=OUTPUT / "topic.png")


def test_topics_are_searched_sorted_and_created(page: Page) -> None:
    page.goto("/console#/topics")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.get_by_role("button", name="Messages", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("orders")
    page.get_by_label("Search").fill("art")
    expect(page.get_by_text("1 of 2 topics")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("textbox", name="Name").fill("made")
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("link", name="made")).to_be_visible()
    page.screenshot(path=OUTPUT / "topics.png")


def test_subjects_of_the_schema_registry(page: Page, server: Address) -> None:
    drink = {"type": "record", "name": "Drink", "fields": [{"name": "name", "type": "string"}]}
    with httpx.Client(base_url=f"{server.url}/registry", trust_env=False) as registry:
        given = {"schema": json.dumps(drink)}
        assert registry.post("/subjects/drinks/versions", json=given).status_code == 200
        page.goto("/console#/schemas")
        rows = page.get_by_role("region", name="Subjects").locator("tbody tr")
        expect(rows.filter(has_text="orders-value")).to_contain_text("JSON")
        page.get_by_role("button", name="Register a schema").click()
        dialog = page.get_by_role("dialog")
        dialog.locator("input[name=name]").fill("menus-value")
        dialog.get_by_label("What to do").select_option("register")
        dialog.get_by_label("Definition").fill('{"type": "array", "items": "Drink"}')
        dialog.get_by_label("References").fill("Drink drinks 1")
        dialog.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_role("heading", name="menus-value")).to_be_visible()
        versions = page.get_by_role("region", name="Versions").locator("tbody tr")
        expect(versions).to_contain_text("Drink: drinks, version 1")
        page.get_by_role("button", name="Check whether it may follow").click()
        expect(page.get_by_text("It may follow.")).to_be_visible()
        page.get_by_label("Definition").fill('"int"')
        page.get_by_label("References").fill("")
        page.get_by_role("button", name="Check whether it may follow").click()
        expect(page.get_by_text("It may not follow: ")).to_be_visible()
        page.get_by_label("Level").select_option("NONE")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.locator(".figure", has_text="Compatibility")).to_contain_text("NONE")
        assert registry.get("/config/menus-value").json() == {"compatibilityLevel": "NONE"}
        page.get_by_label("What to do").select_option("register")
        page.get_by_role("button", name="Register", exact=True).click()
        expect(versions).to_have_count(2)
        page.screenshot(path=OUTPUT / "subject.png", full_page=True)
        versions.first.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(versions.first).to_contain_text("deleted")
        assert registry.get("/subjects/menus-value/versions").json() == [2]
        for name in ("Delete the subject", "Delete the subject permanently"):
            page.get_by_role("button", name=name, exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()
            expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("heading", name="Schemas")).to_be_visible()
        expect(rows.filter(has_text="drinks")).to_be_visible()
        expect(page.get_by_text("menus-value")).to_have_count(0)
        assert registry.get("/subjects").json() == ["drinks", "orders-value"]
        assert registry.delete("/subjects/drinks").status_code == 200
    page.reload()
    expect(page.get_by_role("heading", name="Deleted, not permanently")).to_be_visible()
    page.screenshot(path=OUTPUT / "subjects.png")


def test_messages_are_browsed_filtered_opened_and_linked(page: Page) -> None:
    page.goto(view("orders"))
    rows = page.locator("table.messages > tbody > tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("k119")  # the newest
    page.get_by_label("JSON path").fill('$.product = "tea"')
    page.get_by_label("At most").fill("7")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(rows).to_have_count(7)
    expect(rows.first).to_contain_text("tea")
    page.get_by_label("Show").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("10")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(rows.first).to_contain_text("k11")
    rows.first.get_by_role("button").click()
    opened = page.locator(".message")
    expect(opened).to_contain_text('"product": "tea"')
    expect(opened.get_by_text("lang")).to_be_visible()
    opened.get_by_role("button", name="Bytes").click()
    expect(opened.locator("pre.value")).to_contain_text("000000  7b 22 69 64")  # {"id
    link = opened.get_by_role("link", name="Link to this message").get_attribute("href")
    assert link
    page.goto("/console#/")
    page.goto(f"/console{link}")
    expect(page.locator(".message")).to_contain_text('"id": 11')
    page.screenshot(path=OUTPUT / "message.png")


def test_a_condition_that_cannot_be_read_is_a_sentence(page: Page) -> None:
    page.goto(view("orders", values="?where=a%20b%20%3D%201"))
    expect(page.get_by_role("alert")).to_contain_text("This is no path")


def test_messages_of_all_partitions_come_together(page: Page) -> None:
    page.goto(view("parts"))
    expect(page.locator("table.messages > tbody > tr")).to_have_count(9)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as NDJSON").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert {json.loads(line)["value"] for line in lines} == {f"part {n}" for n in range(9)}
    page.get_by_label("Partition").select_option("1")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile("partition=1"))


def test_what_a_message_holds_stays_text_and_large_values_come_on_demand(page: Page, server: Address) -> None:
    name, markup = "a<b onclick=1>", "<img src=x onerror=\"document.title='broken'\">"
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        messages = [
            {"value": markup, "key": markup, "properties": {markup: markup}},
            {"value": "x" * 3_000_000},
        ]
        body = {"messages": messages}
        assert client.post(f"/topics/public/default/{quote(name)}", json=body).status_code == 200
        subscription = (
            f"/admin/v2/persistent/public/default/{quote(name)}/subscription/{quote(markup, safe='')}"
        )
        assert client.put(subscription, json="earliest").status_code == 204
    page.goto(view(name))
    rows = page.locator("table.messages > tbody > tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(markup)
    assert max(sizes) < 100_000
    rows.nth(1).get_by_role("button").click()
    expect(page.locator(".message dl")).to_contain_text(markup)
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    rows.nth(0).get_by_role("button").click()
    page.get_by_role("button", name="Load the whole value (2.9 MiB)").click()
    expect(page.get_by_role("button", name="Copy value")).to_be_visible()
    assert page.locator(".message pre.value").evaluate("each => each.textContent.length") == 3_000_000
    page.get_by_role("button", name="Bytes").click()
    expect(page.get_by_text("The first 4,096 bytes.")).to_be_visible()
    page.goto(view(name, "subscriptions"))
    expect(page.get_by_role("link", name=markup)).to_be_visible()
    assert page.locator("img").count() == 0


def test_what_is_published_appears_in_the_live_view(page: Page, server: Address) -> None:
    page.goto(view("parts", "live"))
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    shown = page.locator("table.messages > tbody > tr")
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for number in range(1000):  # until the streams stand, what is published is before them
            body = {"messages": [{"value": f"live {number}", "key": str(number)}]}
            assert client.post("/topics/public/default/parts", json=body).status_code == 200
            page.wait_for_timeout(50)
            if shown.count():
                break
    expect(shown.first).to_contain_text("live")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    page.screenshot(path=OUTPUT / "live.png")


def test_a_message_is_checked_and_published(page: Page) -> None:
    page.goto(view("orders", "publish"))
    expect(page.get_by_label("Schema")).to_be_visible()
    page.get_by_label("Value").fill('{"id": "one", "product": "tea", "price": 1}')
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("id must be long")
    page.get_by_label("Value").fill('{"id": 1000, "product": "mate", "price": 1}')
    page.get_by_label("Key").fill("mine")
    page.get_by_label("Properties").fill('{"from": "a browser"}')
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published.")).to_be_visible()
    page.get_by_role("link", name="Show messages").click()
    newest = page.locator("table.messages > tbody > tr").first
    expect(newest).to_contain_text("mate")
    expect(newest).to_contain_text("mine")


def test_a_subscription_is_peeked_moved_skipped_and_deleted(page: Page) -> None:
    page.goto(view("orders", "subscriptions"))
    page.get_by_role("link", name="billing").click()
    page.get_by_role("button", name="Peek").click()
    peeked = page.get_by_role("region", name="The next messages").locator("tbody tr")
    expect(peeked).to_have_count(10)
    expect(peeked.nth(9)).to_contain_text('k9{"id":9,"product":"tea","price":4.5}')
    page.get_by_role("button", name="Skip the whole backlog").click()
    page.get_by_role("dialog").get_by_role("button", name="Skip the whole backlog").click()
    expect(page.get_by_text("Backlog: 0;")).to_be_visible()
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_text(re.compile("Backlog: 12[01];"))).to_be_visible()
    page.get_by_label("Messages to skip").fill("20")
    page.get_by_role("button", name="Skip", exact=True).click()
    expect(page.get_by_text(re.compile("Backlog: 10[01];"))).to_be_visible()
    page.screenshot(path=OUTPUT / "subscription.png")
    page.goto(view("parts", "subscriptions"))
    page.get_by_role("textbox", name="Name").fill("short")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="short").click()
    page.get_by_role("button", name="Delete subscription").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete subscription").click()
    expect(page.get_by_text("No subscriptions yet")).to_be_visible()


def test_dead_letters_are_published_again(page: Page, server: Address) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        body = {
            "value_schema": {"type": "JSON", "schema": SCHEMA},
            "messages": [
                {"value": {"id": 1, "product": "x", "price": 2}, "key": "k"},
                {"value": {"id": 2, "product": "y", "price": 3}, "key": "AP8=", "keyIsBase64": True},
            ],
        }
        assert client.post("/topics/public/default/work-sub-DLQ", json=body).status_code == 200
        assert client.put("/admin/v2/persistent/public/default/work").status_code == 204
        assert (
            client.put(
                "/admin/v2/persistent/public/default/work/subscription/sub", json="earliest"
            ).status_code
            == 204
        )
        page.goto(view("work", "subscriptions", "?name=sub"))
        page.get_by_role("button", name="Republish").click()
        page.get_by_role("dialog").get_by_role("button", name="Republish").click()
        expect(page.get_by_text("2 republished.")).to_be_visible()
        message, other = client.get("/topics/public/default/work/partitions/0/messages").json()["messages"]
        assert (message["value"], message["key"]) == ({"id": 1, "product": "x", "price": 2.0}, "k")
        assert (other["key"], other["keyIsBase64"]) == ("AP8=", True)
        page.get_by_role("button", name="Purge").click()
        page.get_by_role("dialog").get_by_role("button", name="Purge").click()
        expect(page.get_by_text("holds 0 messages")).to_be_visible()


def test_schemas_are_compared_checked_and_registered(page: Page) -> None:
    page.goto(view("orders", "schemas"))
    draft = SCHEMA | {
        "fields": [*SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]
    }  # type: ignore[misc]
    wrong = SCHEMA | {"fields": [{"name": "id", "type": "string"}]}
    page.get_by_label("Definition").fill(json.dumps(wrong))
    page.get_by_role("button", name="Check whether it may follow").click()
    expect(page.get_by_text("It may not follow")).to_be_visible()
    page.get_by_label("Definition").fill(json.dumps(draft))
    page.get_by_role("button", name="Check whether it may follow").click()
    expect(page.get_by_text("It may follow (FULL)")).to_be_visible()
    page.get_by_label("What to do").select_option("register")
    page.get_by_role("button", name="Register").click()
    expect(page.locator(".diff .new", has_text='"name": "note"')).to_be_visible()
    page.screenshot(path=OUTPUT / "schemas.png")


def test_policies_and_the_end_of_a_topic(page: Page, server: Address) -> None:
    httpx.put(f"{server.url}/admin/v2/persistent/public/default/temporary", trust_env=False)
    page.goto(view("temporary", "settings"))
    page.get_by_role("button", name="Change messageTTL").click()
    page.get_by_label("messageTTL").fill("60")
    page.get_by_role("button", name="Save").first.click()
    row = page.locator("tr", has_text="messageTTL")
    expect(row.locator("td").nth(1)).to_have_text("60")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    gone = httpx.get(f"{server.url}/admin/v2/persistent/public/default/temporary", trust_env=False)
    assert gone.status_code == 404


def test_dead_letters_that_are_refused_are_seen(page: Page, server: Address) -> None:
    topic, letters = "/topics/public/default/refused", "persistent/public/default/refused-sub-DLQ"
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        options = {
            "subscription_type": "Shared",
            "initial_position": "earliest",
            "max_redeliver_count": 0,
            "negative_ack_redelivery_delay_ms": 0,
        }
        for url, body in (
            (f"{topic}-sub-DLQ", {"messages": [{"value": "first"}]}),
            (f"/admin/v2/{letters}/terminate", None),
            (topic, {"messages": [{"value": "bad"}]}),
        ):
            assert client.post(url, json=body).status_code == 200
        made = client.post(f"{topic}/subscription/sub", json=options).json()
        (message,) = client.get(f"{made['base_uri']}/messages").json()["messages"]
        given = {"type": "negative", "messageIds": [message["messageId"]]}
        assert client.post(f"{topic}/subscription/sub/cursor", json=given).status_code == 200
        page.goto(view("refused", "subscriptions", "?name=sub"))
        expect(page.get_by_text("Dead letters that cannot be stored: 1")).to_contain_text("terminated")
        page.goto("/console#/")
        row = page.locator("tbody tr", has_text="persistent://public/default/refused sub")
        expect(row).to_contain_text("terminated")
        assert client.delete(f"/admin/v2/{letters}", params={"force": "true"}).status_code == 204


def test_pipelines_show_what_they_said(page: Page, server: Address) -> None:
    event = {
        "pipeline": "sales",
        "state": "failed",
        "rows": 1234,
        "lag": 5,
        "error": "the disk is full",
        "error_class": "STORAGE_FULL",
        "dead_letter_topic": "persistent://public/default/rejected",
        "rules": [
            {
                "view": "v",
                "rule": "small",
                "kind": "expectation",
                "action": "drop",
                "passed": 7001,
                "failed": 2,
            }
        ],
        "ui": "javascript:alert(1)",
    }
    body = {"messages": [{"value": json.dumps(event)}]}
    assert (
        httpx.post(f"{server.url}/topics/penstock/system/pipelines", json=body, trust_env=False).status_code
        == 200
    )
    page.goto("/console#/pipelines")
    row = page.locator("tbody tr", has_text="sales")
    expect(row.first).to_contain_text("1,234")
    row.first.get_by_text("STORAGE_FULL").click()
    expect(row.first).to_contain_text("the disk is full")
    row.first.locator("summary", has_text="1").click()
    expect(page.get_by_role("region", name="Rules of sales")).to_contain_text("v: small")
    expect(page.get_by_role("region", name="Rules of sales")).to_contain_text("7,001")
    expect(row.first.get_by_role("link", name="Open")).to_have_count(0)
    row.first.get_by_role("link", name="public/default/rejected").click()
    expect(page.get_by_role("heading", name="public/default/rejected")).to_be_visible()


def test_the_interface_is_searched_and_tried(page: Page) -> None:
    page.goto("/docs")
    page.get_by_label("Search").fill("publish messages")
    page.locator("summary", has_text="/topics/{tenant}/{namespace}/{topic}").first.click()
    expect(page.get_by_text("the dialect that Pulsar shipped").first).to_be_visible()
    page.get_by_label("topic", exact=True).fill("tried")
    page.get_by_role("button", name="Send POST").click()
    answer = page.locator(".inside .card")
    expect(answer.get_by_text("200", exact=True)).to_be_visible()
    expect(answer.locator("pre.value")).to_contain_text("messageId")
    expect(answer.locator(".command")).to_contain_text("curl -X POST")
    page.screenshot(path=OUTPUT / "docs.png")


def test_the_first_page_leads_on(page: Page) -> None:
    page.goto("/")
    expect(page.locator("pre")).to_contain_text(f"curl '{page.url.rstrip('/')}/topics/public/default/hello'")
    page.get_by_role("link", name="/console").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_are_accessible(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    places = [
        "/console",
        "/console#/topics",
        view("orders"),
        view("orders", "publish"),
        view("orders", "subscriptions", "?name=billing"),
    ]
    places += [
        view("orders", "schemas"),
        view("orders", "settings"),
        "/console#/pipelines",
        "/console#/schemas",
        "/console#/schemas/orders-value",
        "/docs#/reference?search=publish",
        "/",
    ]
    for place in places:
        page.goto("about:blank")
        page.goto(place)
        expect(page.locator("h1").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        page.add_script_tag(path=AXE) if place == "nothing" else page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
        assert not [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]], place
        name = re.sub(r"\W+", "-", place).strip("-")[-60:] or "welcome"
        page.screenshot(path=OUTPUT / f"{scheme}-{name}.png")


def test_a_phone_shows_every_view_without_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for place in (
        "/console",
        "/console#/topics",
        view("orders"),
        view("orders", "settings"),
        "/console#/schemas",
        "/console#/schemas/orders-value",
        "/docs",
        "/",
    ):
        page.goto("about:blank")
        page.goto(place)
        expect(page.locator("h1").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{place} is {width} px wide"
    page.screenshot(path=OUTPUT / "phone.png")


def test_by_keyboard_alone(page: Page) -> None:
    page.goto("/console#/topics")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
