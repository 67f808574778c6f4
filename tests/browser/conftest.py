"""A browser and a server for a module, and a page for a test, which fails where something went wrong in the page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, expect, sync_playwright

from penstock.testing.server import Address, running

WITHIN_MS = 60_000  # a busy machine may take long; an idle one takes a fraction of a second
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
OUTPUT = Path(__file__).parent / "build"  # screenshots of the last run

expect.set_options(timeout=WITHIN_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of a module, not of the run: Playwright's loop runs in this thread until it ends, where no other can."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine, and it could not be installed")
    OUTPUT.mkdir(exist_ok=True)
    # Root has no sandbox of its own. Only loopback resolves: a page that loads from elsewhere fails.
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=WITHIN_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture
def page(browser: Browser, server: Address) -> Iterator[Page]:
    with open_page(browser, server.url) as page:
        yield page


@contextmanager
def open_page(browser: Browser, url: str) -> Iterator[Page]:
    """An empty page of a server. The test fails where a script fails, or something is loaded from elsewhere."""
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WITHIN_MS)
    page, problems = context.new_page(), list[str]()

    def said(message: ConsoleMessage) -> None:
        # A refused call is said by the browser itself; the page shows it where it matters.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            problems.append(message.text)

    def answered(response: Response) -> None:
        if not response.url.startswith((url, "data:", "blob:")):
            problems.append(f"loaded from elsewhere: {response.url}")

    page.on("console", said)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", answered)
    yield page
    context.close()
    assert not problems
