"""Staged publishing while the broker is killed. It is this file's own."""

import asyncio
import signal
from pathlib import Path
from typing import Final

import pytest
from tests.clusters.test_pulsar_staging import (
    ANYBODY,
    ENTRIES,
    engine,
    expected,
    settings_of,
    staged,
    writers,
)
from tests.support.entry_producers import payloads_of
from tests.support.pulsar_broker import NUMBERED, standalone
from tests.support.stages import topic

from penstock.client.entries.transactions import TransactionId
from penstock.model.errors import ErrorKind, PenstockError

AGAIN_S: Final = 240

pytestmark = pytest.mark.timeout(600)


async def test_the_broker_is_killed_within_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is stored but the end of the transaction: the writer tries again when the broker is back."""
    settings = {
        **NUMBERED,
        "transactionCoordinatorEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    started = standalone(tmp_path, settings)
    cluster = await asyncio.to_thread(started.__enter__)
    try:
        async with engine(settings_of(cluster)) as broker:
            await broker.topics.get(topic("t"), create=True)
            stages = await staged(broker, "w", 0, [topic("t")])
            transactions = writers(broker).transactions
            end = transactions.end

            async def kill_before(transaction: TransactionId, *, commit: bool) -> None:
                if commit:
                    monkeypatch.setattr(transactions, "end", end)
                    cluster.kill(signal.SIGKILL)
                await end(transaction, commit=commit)

            monkeypatch.setattr(transactions, "end", kill_before)

            async def commit() -> tuple[int, bool]:
                done, new = await broker.staging.commit(
                    "w", 0, stages, ANYBODY, topics=[topic("t")], keep=True
                )
                return done.messages, new

            with pytest.raises(PenstockError) as caught:
                await commit()
            assert caught.value.kind is ErrorKind.UNAVAILABLE
            await asyncio.to_thread(cluster.restart)

            async def try_again() -> tuple[int, bool]:
                while True:
                    try:
                        return await commit()
                    except PenstockError as error:
                        if not error.retriable:  # a broker that is starting may not have its bookies yet
                            raise
                        await asyncio.sleep(0.5)

            # It is new unless one of the attempts that failed was committed and only its answer was lost.
            assert (await asyncio.wait_for(try_again(), AGAIN_S))[0] == 2 * ENTRIES
            # The broker has just started: it may still fail at what it does next.
            assert await asyncio.wait_for(try_again(), AGAIN_S) == (2 * ENTRIES, False)
        found = await payloads_of(cluster.service_url, str(topic("t")), 2 * ENTRIES)
        assert [one.decode() for one in found] == expected(0)
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)
