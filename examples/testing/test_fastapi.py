"""A FastAPI application that publishes what is posted, and its tests."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import pytest

import penstock
from penstock.testing.server import Running

pytest.importorskip("fastapi")
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel


class Order(BaseModel):
    id: int
    price: float


def make_app(service_url: str) -> FastAPI:
    """The code under test. One client and one producer serve all requests."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with penstock.aio.Client(service_url) as client:
            app.state.orders = await client.create_producer("orders")
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def order(body: Order) -> dict[str, str]:
        if body.price < 0:
            raise HTTPException(422, "a price is not negative")
        message_id = await app.state.orders.send(body.model_dump_json().encode(), partition_key=str(body.id))
        return {"message_id": str(message_id)}

    return app


@pytest.fixture
def web(penstock_server: Running) -> Iterator[TestClient]:
    with TestClient(make_app(penstock_server.pulsar)) as client:
        yield client


def test_what_is_posted_is_published(web: TestClient, penstock_server: Running) -> None:
    assert web.post("/orders", json={"id": 7, "price": 2.5}).status_code == 202
    (message,) = penstock_server.messages("orders", encoding="text")
    assert (message["key"], json.loads(message["value"])) == ("7", {"id": 7, "price": 2.5})


def test_what_is_refused_is_not_published(web: TestClient, penstock_server: Running) -> None:
    assert web.post("/orders", json={"id": 7, "price": -1}).status_code == 422
    assert penstock_server.messages("orders") == []
