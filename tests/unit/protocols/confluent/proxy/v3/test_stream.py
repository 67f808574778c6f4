"""A stream of records: how it ends if its server stops, or has no room for it."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.protocols.confluent.proxy.v3.json_values import ShapeError
from penstock.protocols.confluent.proxy.v3.record_shapes import Record, Stored
from penstock.protocols.confluent.proxy.v3.stream import RecordStream
from penstock.protocols.holding import STATE_KEY, Holding
from penstock.protocols.http.exchange import Event, Exchange
from penstock.protocols.load import Load
from penstock.protocols.rates import SCOPE_KEY
from penstock.runtime.clock import LoopClock


class Sent(Exchange):
    """A request whose body has come in parts, and its answer; bytes that were received count as held."""

    __slots__ = ("answered", "body_parts")

    def __init__(self, holding: Holding, parts: Sequence[bytes]) -> None:
        super().__init__({"type": "http", "method": "POST", "headers": [], "state": {STATE_KEY: holding}})
        self.body_parts = list(parts)
        self.answered = b""

    async def receive_event(self) -> Event:
        body = self.body_parts.pop(0) if self.body_parts else b""
        self.scope["state"][STATE_KEY].receive(len(body))
        return {"type": "http.request", "body": body, "more_body": bool(self.body_parts)}

    async def send_event(self, event: Event) -> None:
        self.answered += event.get("body", b"")

    def end_body(self) -> None:
        self.body_parts.clear()

    def settle(self, size: int) -> None:
        self.scope["state"][STATE_KEY].receive(-size)


class Rate:
    """An allowance; the server stops when some records were counted."""

    def __init__(self, context: SimpleNamespace, records: int) -> None:
        self._context = context
        self._left = records

    async def spend(self, requests: int, size: int) -> None:
        self._left -= requests
        self._context.draining = self._left <= 0

    def take(self, requests: int, size: int) -> None: ...


async def produce(records: Sequence[Record | ShapeError]) -> list[Stored]:
    return [
        Stored(cluster_id="c", topic_name="t", partition_id=0, offset=number, timestamp="")
        for number in range(len(records))
    ]


async def results(
    parts: Sequence[bytes], *, draining: bool = False, room: int = 1 << 30, stops_after: int = 0
) -> tuple[list[Any], int]:
    """What a stream answers, and how many bytes are held at its end. `stops_after`: the server stops after so many records of a caller
    with a rate."""
    holding = Holding(Load(10, 10, room), "127.0.0.1")
    exchange = Sent(holding, parts)
    context = SimpleNamespace(draining=draining)
    caller = SimpleNamespace(watch=lambda *_: None, context=context)
    if stops_after:
        exchange.scope[SCOPE_KEY] = Rate(context, stops_after)
    stream = RecordStream(exchange, produce, LoopClock(), 1 << 20, latin=False)
    await stream.run(cast(Any, caller), lambda: None)
    return [json.loads(line) for line in exchange.answered.splitlines()], holding.received


@pytest.mark.parametrize("draining", [False, True])
async def test_half_a_record_is_the_clients_fault_unless_the_server_stops(draining: bool) -> None:
    found, held = await results([b"{}", b'{"value": '], draining=draining)
    assert [one.get("error_code") for one in found] == [None, 503 if draining else 400]
    assert held == 0


async def test_a_stream_ends_if_there_is_no_room_for_its_record() -> None:
    """It was answered already, and is not refused by its connection."""
    found, held = await results([b"{}", b'{"value": "', *[b"x" * 1000] * 100, b'"}'], room=10_000)
    assert len(found) == 2
    assert found[1]["error_code"] == 429
    assert "max_bytes_in_flight" in found[1]["message"]
    assert held == 0


async def test_records_that_wait_for_their_rate_do_not_hold_up_a_stop() -> None:
    found, held = await results([b"{}" * 1000], stops_after=3)
    assert len(found) == 3
    assert all("offset" in one for one in found)
    assert held == 0
