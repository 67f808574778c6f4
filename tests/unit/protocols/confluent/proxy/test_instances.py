"""Consumer instances of one process: their names, timers and the processes that ask for them."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from penstock.broker.acting import ACTING, Acting
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.protocols.confluent.proxy.formats import Format
from penstock.protocols.confluent.proxy.instances import Instances, Key
from penstock.protocols.context import ServerContext
from penstock.protocols.remote_instances import RemoteInstances
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

KEY = Key("ada", "g", "one")


class Member:
    """What an instance asks of its member."""

    closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def instances(clock: ManualClock) -> AsyncIterator[Instances]:
    broker = Broker(MemoryStore(), MemoryStore(TRANSIENT_LEDGERS), wire, clock)
    await broker.start()
    context = ServerContext(broker)
    made = Instances(context, RemoteInstances(context))
    yield made
    await made.close()
    await broker.close()


async def add(instances: Instances) -> Member:
    member = Member()
    async with instances.making(KEY, chosen=True):
        instances.add(KEY, cast(Any, member), Format.JSON, 1000, 0)
    return member


async def test_a_name_that_is_used_again_has_one_timer(instances: Instances, clock: ManualClock) -> None:
    for _ in range(5):
        await add(instances)
        await instances.remove(instances.get(KEY))
    member = await add(instances)
    await clock.advance(200_000)
    instances.get(KEY)
    await clock.advance(200_000)
    assert not member.closed
    assert len(instances._timers) == 1
    await clock.advance(101_000)
    assert member.closed


async def test_another_process_finds_an_instance_of_any_token(instances: Instances) -> None:
    before = ACTING.set(Acting("ada", Secret("token")))
    await add(instances)
    ACTING.reset(before)
    instances.check(KEY)  # a process acts for nobody
    with pytest.raises(PenstockError) as refused:
        instances.get(KEY)
    assert refused.value.kind is ErrorKind.FORBIDDEN
    with pytest.raises(ConfluentError):
        instances.check(KEY._replace(name="two"))


async def test_asking_keeps_no_instance(instances: Instances, clock: ManualClock) -> None:
    member = await add(instances)
    await clock.advance(200_000)
    instances.check(KEY)
    with pytest.raises(ConfluentError):
        async with instances.making(KEY, chosen=True):
            pass
    await clock.advance(101_000)
    assert member.closed
