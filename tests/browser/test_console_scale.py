"""The console over many topics and messages: what the browser asks for stays small, and the page answers."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, Response, expect

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, running

TOPICS = 2_000
MESSAGES = 200_000
PER_REQUEST = 10_000
ANSWER_MAX = 1024 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        with httpx.Client(base_url=address.url, trust_env=False, timeout=60) as client:
            for number in range(TOPICS):
                path = f"/admin/v2/persistent/public/default/topic-{number:05}"
                assert client.put(path).status_code == 204
        with HttpClient(address.url) as client:
            for start in range(0, MESSAGES, PER_REQUEST):
                messages = [
                    {"value": f"message {n}", "key": str(n)} for n in range(start, start + PER_REQUEST)
                ]
                client.produce(TopicName.parse("topic-00007"), messages)
        yield address


def test_many_topics_and_messages(page: Page) -> None:
    sizes: dict[str, int] = {}

    def answered(response: Response) -> None:
        sizes[response.url] = int(response.headers.get("content-length", 0))

    page.on("response", answered)
    page.goto("/console#/topics")
    expect(page.get_by_text(f"{TOPICS:,} topics")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_label("Search").fill("topic-00007")
    expect(page.get_by_text("1 of")).to_be_visible()
    page.get_by_role("link", name="topic-00007").click()
    rows = page.locator("table.messages > tbody > tr")
    expect(rows.first).to_contain_text(f"message {MESSAGES - 1}")
    page.get_by_label("Text").fill(f"message {MESSAGES - 15_000}")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(rows).to_have_count(1)  # looked for backwards, a page at a time
    page.get_by_label("Text").fill("nowhere")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_text("0 shown of 20,000 scanned; a search scans at most 20,000")).to_be_visible()
    assert max(sizes.values()) < ANSWER_MAX, max(sizes, key=lambda url: sizes[url])
