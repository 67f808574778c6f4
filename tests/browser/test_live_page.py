"""The page of the tutorial, `examples/live_page`, shows votes as they come."""

import re

import httpx
from playwright.sync_api import Page, expect
from tests.support.pages import ROOT

from penstock.testing.server import Address

PAGE = ROOT / "examples" / "live_page" / "index.html"


def test_votes_of_all_appear(server: Address, page: Page) -> None:
    topic = f"{server.url}/topics/public/default/votes"
    httpx.post(topic, json={"messages": [{"value": "tea"}]}).raise_for_status()
    page.route(re.compile(r"/vote\?"), lambda route: route.fulfill(path=PAGE, content_type="text/html"))
    page.goto(f"/vote?server={server.url}")
    result = page.locator("#result")
    expect(result).to_contain_text("tea: 1")  # it was there before
    page.get_by_role("button", name="coffee").click()
    expect(result).to_contain_text("coffee: 1")
    httpx.post(topic, json={"messages": [{"value": "tea"}, {"value": "coffee"}]}).raise_for_status()
    expect(result).to_contain_text("tea: 2")
    expect(result).to_contain_text("coffee: 2")
