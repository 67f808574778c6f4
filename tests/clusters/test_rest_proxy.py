"""Confluent's REST proxy before real clusters, by three processes that are one service: each request goes to the next one."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.rest_proxy import SCHEMA_STORIES, STORIES, Proxy
from tests.support.service import Service


@pytest.fixture(scope="module", params=["pulsar"])
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    service: Service = request.getfixturevalue(f"{request.param}_service")
    with Proxy(*(f"{node.url}/rest" for node in service.nodes)) as made:
        yield made


@pytest.mark.parametrize("story", [*STORIES, *SCHEMA_STORIES], ids=lambda story: story.__name__)
def test_stories(proxy: Proxy, story: Callable[[Proxy], None]) -> None:
    story(proxy)
