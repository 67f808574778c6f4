"""A Django view that publishes what is posted, and its tests. One server is enough for all of them: each has its topic."""

# ruff: noqa: E402 (what may be missing is imported after it was looked for)
import json
from collections.abc import Iterator

import pytest

import penstock
from penstock.testing.server import Running

django = pytest.importorskip("django")
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.test import Client, override_settings
from django.urls import path

if not settings.configured:  # a project has a module of settings instead
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver"],
        ORDERS_SERVICE="",
        ORDERS_TOPIC="orders",
    )
    django.setup()

_clients: dict[str, penstock.Client] = {}


def orders(request: HttpRequest) -> JsonResponse:
    """The code under test. A client is made once and serves every thread."""
    service = settings.ORDERS_SERVICE
    client = _clients.get(service) or _clients.setdefault(service, penstock.Client(service))
    order = json.loads(request.body)
    producer = client.create_producer(settings.ORDERS_TOPIC)
    try:
        producer.send(json.dumps(order).encode(), properties={"path": request.path})
    finally:
        producer.close()
    return JsonResponse({"published": order["id"]}, status=202)


urlpatterns = [path("orders/", orders)]


@pytest.fixture
def topic(penstock_module_server: Running) -> Iterator[str]:
    """A topic of the test's own, which the view publishes to."""
    topic = penstock_module_server.create_topic()
    with override_settings(ORDERS_SERVICE=penstock_module_server.pulsar, ORDERS_TOPIC=topic):
        yield topic
    for client in _clients.values():
        client.close()
    _clients.clear()


def test_what_is_posted_is_published(topic: str, penstock_module_server: Running) -> None:
    answer = Client().post("/orders/", {"id": 7}, content_type="application/json")
    assert (answer.status_code, answer.json()) == (202, {"published": 7})
    (message,) = penstock_module_server.messages(topic, encoding="text")
    assert (json.loads(message["value"]), message["properties"]) == ({"id": 7}, {"path": "/orders/"})


def test_each_test_has_a_topic_of_its_own(topic: str, penstock_module_server: Running) -> None:
    assert penstock_module_server.messages(topic) == []
