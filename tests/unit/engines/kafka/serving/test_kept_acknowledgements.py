"""Acknowledgements that a consumer's link keeps for the next owner, where they do not count any more."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import FLUSH_MS, SHARED, Server, id_of, offsets
from tests.support.skipping_log import LEDGER, SkippingLog

from penstock.client.entries.arrived import Arrived
from penstock.engines.attached import moving_link
from penstock.engines.attached.acknowledgements import Unstored
from penstock.engines.attached.link import Attachment, LinkSink
from penstock.engines.attached.local_link import LocalLink
from penstock.engines.attached.moving_link import MovingLink
from penstock.model.errors import PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.policy import ConsumerOptions
from penstock.testing.clock import ManualClock, settle


class NoWaits:
    """A back-off of no time."""

    def __init__(self, max_s: float) -> None:
        pass

    def next_s(self) -> float:
        return 0

    def reset(self) -> None:
        pass


class Service:
    """Processes over one log, and a consumer that is attached to one after the other."""

    def __init__(self) -> None:
        self.log = SkippingLog(ManualClock())
        self.log.grow(0, 10)
        self.journal = Log()
        self.servers: list[Server] = []
        self.got: list[int] = []
        self.events: list[object] = []
        self.may_open = asyncio.Event()
        self.may_open.set()

    def server(self, name: str) -> Server:
        """A process, which owns nothing yet."""
        self.servers.append(Server(self.journal, name, self.log))
        return self.servers[-1]

    async def attach(self) -> MovingLink:
        """A consumer that has got everything."""
        tasks = self.servers[0].tasks
        topic = self.servers[0].topic.name
        options = ConsumerOptions(name="c", type=SHARED, start=EARLIEST)
        made = MovingLink(self._link_to, Attachment(topic, "s", "c", options, EARLIEST), self, tasks)
        await made.start()
        made.flow(1000)
        await self.came(10)
        return made

    async def _link_to(self, wanted: Attachment, sink: LinkSink) -> LocalLink:
        await self.may_open.wait()
        return LocalLink(self.servers[-1].consumers, wanted, sink, self.servers[-1].tasks)

    async def came(self, count: int) -> list[int]:
        """The messages that came since the last call."""
        async with asyncio.timeout(60):
            while len(self.got) < count:
                await settle()
        await settle()
        found, self.got = self.got, []
        return found

    def truncate(self, end: int, more: int = 0) -> None:
        """The log loses its end, and grows again before it is noticed."""
        self.log.entries = {offset: self.log.entries[offset] for offset in range(end)}
        self.log.next_entry = self.log.next_offset = end
        self.log.grow(0, more)

    # -- as the sink

    def arrived(self, entries: list[Arrived]) -> None:
        self.got += [one.entry_id for one in entries]

    def reset(self) -> None:
        self.events.append("reset")

    def moved(self) -> None:
        self.events.append("moved")

    def active(self, active: bool) -> None:
        pass

    def end_reached(self) -> None:
        pass

    def ended(self, error: PenstockError) -> None:
        self.events.append(error)

    async def close(self) -> None:
        for server in self.servers:
            await server.close()


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    monkeypatch.setattr(moving_link, "Backoff", NoWaits)
    made = Service()
    yield made
    await made.close()


async def test_what_was_saved_is_not_given_to_the_next_owner(service: Service) -> None:
    """An administrator resets the subscription while there is no link."""
    last, next_one = service.server("a"), service.server("b")
    service.servers.pop()
    await last.gain()
    link = await service.attach()
    link.acknowledge([(LEDGER, offset) for offset in range(10)])
    await last.clock.advance(FLUSH_MS)  # nobody waits for it: the flusher saves it
    await settle()
    service.servers.append(next_one)
    service.may_open.clear()
    await last.release()
    await next_one.gain()
    found = await next_one.served.find(next_one.topic, "s")
    assert found is not None
    assert found.cursor.mark == 10
    await found.move(0)
    service.may_open.set()
    assert await service.came(10) == list(range(10))
    assert found.cursor.mark == 0


async def test_what_the_last_owner_refused_is_given_to_the_next_one(service: Service) -> None:
    last = service.server("a")
    await last.gain()
    link = await service.attach()
    local = link._open_link
    assert isinstance(local, LocalLink)
    last.topic.served["s"].end()
    local.acknowledge([(LEDGER, 3)])
    await settle()
    await last.flusher.flush()
    kept = Unstored()
    assert local.give_unstored_to(kept)
    assert list(kept._entries) == [(LEDGER, 3)]


async def test_messages_that_get_the_offsets_of_acknowledged_ones_are_delivered(service: Service) -> None:
    """The partition was truncated. One was acknowledged just now, and is not saved."""
    server = service.server("a")
    await server.gain()
    link = await service.attach()
    link.acknowledge([(LEDGER, offset) for offset in range(9)])
    await server.flusher.flush()
    link.acknowledge([(LEDGER, 9)])
    service.truncate(5, more=10)
    await server.topic.refresh()
    server.topic.cut_at = 5
    await server.served.refit(server.topic)
    assert await service.came(15) == list(range(15))
    assert service.events == ["moved", "reset"]
    assert server.topic.served["s"].cursor.mark == 0


async def test_a_reader_gets_the_messages_that_replace_lost_ones_it_had(service: Service) -> None:
    server = service.server("a")
    await server.gain()
    reader = await server.subscribe(subscription="r", durable=False)
    assert await offsets(reader) == set(range(10))
    await reader.acknowledge_all([id_of(offset) for offset in range(3)])
    service.truncate(5)
    await server.topic.refresh()
    server.topic.cut_at = 5
    await server.served.refit(server.topic)
    service.log.grow(0, 3)
    await server.topic.refresh()
    server.topic.served["r"].wake()
    assert await offsets(reader) == set(range(3, 8))
    assert not reader.closed
