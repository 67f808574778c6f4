"""Make the console's pictures for README and docs: python scripts/screenshots.py

A server in memory, the demo's flights, Chromium; the pictures go to docs/images.
"""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import httpx
from playwright.sync_api import Page, expect, sync_playwright

from penstock.demo.flights import publish_flights
from penstock.model.names import TopicName
from penstock.testing.server import running

FOLDER = Path(__file__).parents[1] / "docs" / "images"
TOPIC = TopicName.parse("flights")
ADMIN = "/admin/v2/persistent/public/default"


def fill(url: str) -> None:
    """Flights, a subscription that is behind, and what a pipeline said of itself."""
    publish_flights(url, TOPIC, lambda count: None)
    with httpx.Client(base_url=url, trust_env=False) as client:
        for subscription in ("billing", "departures"):
            client.put(f"{ADMIN}/flights/subscription/{subscription}", json="earliest").raise_for_status()
        for name in ("delays", "clicks", "orders"):
            client.put(f"{ADMIN}/{name}/partitions", json=4).raise_for_status()
        event = {
            "pipeline": "delays",
            "state": "running",
            "batch": 3,
            "rows": 336776,
            "rows_per_second": 81000,
            "lag": 0,
        }
        body = {"messages": [{"value": json.dumps(event)}]}
        client.post("/topics/penstock/system/pipelines", json=body).raise_for_status()


def take(page: Page, url: str, name: str, fragment: str) -> None:
    """One picture."""
    page.goto("about:blank")
    page.goto(f"{url}/console#/{fragment}")
    expect(page.locator("h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    flights = quote(str(TOPIC), safe="")
    with running() as server, sync_playwright() as playwright:
        fill(server.url)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme="light")
        take(page, server.url, "console-topics", "topics")
        take(page, server.url, "console-messages", f"topic/{flights}/messages?limit=12")
        take(page, server.url, "console-publish", f"topic/{flights}/publish")
        browser.close()


if __name__ == "__main__":
    main()
