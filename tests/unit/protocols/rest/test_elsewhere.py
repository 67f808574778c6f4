"""Where a request for a consumer instance of another process is sent: what the cluster's clients say is not trusted."""

from typing import Any, cast

import pytest

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.rest.elsewhere import Elsewhere

OTHER = "http://127.0.0.1:9001"


class Process:
    """One of several; the cluster shows the properties of one consumer."""

    own_url = "http://127.0.0.1:9000"

    def __init__(self, **properties: str) -> None:
        self.broker = self.cluster = self.topics = self
        self._properties = {name.replace("_", "-"): value for name, value in properties.items()}

    def exists(self, name: TopicName) -> bool:
        return False

    async def consumers(self, log: TopicName, subscription: str) -> list[dict[str, str]]:
        return [self._properties]


class Request:
    topic = TopicName.parse("orders")
    subscription = "s"

    def __init__(self, query: bytes = b"") -> None:
        self.scope = {"path": "/x", "raw_path": b"/topics/a%2Fb/cursor", "query_string": query}


async def sent_to(process: Process, query: bytes = b"") -> str | None:
    request = cast(Any, Request(query))
    try:
        await Elsewhere(cast(Any, process)).check(request, request)
    except RefusedError as error:
        return error.headers["location"]
    return None


async def test_a_request_is_sent_on_without_its_token() -> None:
    process = Process(penstock_url=f"{OTHER}/")
    assert await sent_to(process) == f"{OTHER}/topics/a%2Fb/cursor"
    query = b"a=b%2F&token=x&%74oken=y&TOKEN&c="
    assert await sent_to(process, query) == f"{OTHER}/topics/a%2Fb/cursor?a=b%2F&c="


@pytest.mark.parametrize(
    "url",
    [
        "",
        Process.own_url,
        "javascript:1",
        "//a",
        "http://a\r\nSet-Cookie: b=c",
        "http://a b",
        "http://\u00e9",
    ],
)
async def test_what_is_no_address_of_another_process_is_passed_over(url: str) -> None:
    assert await sent_to(Process(penstock_url=url)) is None


async def test_another_instance_is_not_meant() -> None:
    process = Process(penstock_url=OTHER, penstock_consumer_instance="0")
    request = cast(Any, Request())
    await Elsewhere(cast(Any, process)).check(request, request, "an-id")
    with pytest.raises(PenstockError):
        await Elsewhere(cast(Any, process)).check(request, request)
