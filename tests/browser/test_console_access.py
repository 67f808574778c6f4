"""The console where authentication is on: signing in, and what a role sees."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running

ISSUER = Issuer()
ADMIN = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(auth=ISSUER.settings(super_users=("root",))) as address:
        with httpx.Client(base_url=address.url, headers=ISSUER.headers("root"), trust_env=False) as client:
            body = {"messages": [{"value": "for guests"}]}
            assert client.post("/topics/public/default/seen", json=body).status_code == 200
            assert client.put(f"{ADMIN}/hidden").status_code == 204
            assert client.post(f"{ADMIN}/seen/permissions/guest", json=["consume"]).status_code == 204
        yield address


def sign_in(page: Page, role: str, *, keep: bool = False) -> None:
    page.get_by_label("Token", exact=True).fill(ISSUER.token(role))
    if keep:
        page.get_by_label("Keep me signed in").check()
    page.get_by_role("button", name="Sign in").click()


def test_a_role_sees_what_it_may(page: Page) -> None:
    page.goto("/console#/topics")
    page.get_by_label("Token", exact=True).fill("no token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").first).to_be_visible()
    sign_in(page, "guest")
    expect(page.get_by_role("link", name="seen")).to_be_visible()
    expect(page.get_by_text("1 topics")).to_be_visible()
    expect(page.locator("header")).to_contain_text("guest")
    expect(page.get_by_role("button", name="Create topic")).to_have_count(0)
    page.get_by_role("link", name="seen").click()
    expect(page.locator("table.messages")).to_contain_text("for guests")
    tabs = page.get_by_role("navigation", name="Topic")
    expect(tabs.get_by_role("link", name="Subscriptions")).to_be_visible()
    expect(tabs.get_by_role("link", name="Publish")).to_have_count(0)
    expect(tabs.get_by_role("link", name="Settings")).to_have_count(0)
    page.goto("/console#/")
    expect(page.get_by_text("Only administrators see the charts of the whole server.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_credentials_are_forgotten_with_the_tab_unless_they_are_kept(page: Page, server: Address) -> None:
    page.goto("/console")
    sign_in(page, "root")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    other = page.context.new_page()  # another tab has a session of its own
    other.goto(f"{server.url}/console")
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(other, "root", keep=True)
    expect(other.get_by_role("heading", name="Overview")).to_be_visible()
    third = page.context.new_page()
    third.goto(f"{server.url}/console")
    expect(third.get_by_role("heading", name="Overview")).to_be_visible()


def test_the_interface_is_read_by_everyone_and_tried_with_credentials(page: Page) -> None:
    page.goto("/docs#/reference?search=GET /admin/v2/tenants")
    expect(page.locator("summary").first).to_be_visible()
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, "root")
    page.locator("summary", has_text="/admin/v2/tenants").first.click()
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".inside .card")).to_contain_text("public")
