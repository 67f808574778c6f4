"""The processes of a server: what the supervisor starts them with."""

import asyncio
import signal
import sys

import pytest

from penstock.server.workers import Worker

# Ready at once, with two variables in place of addresses; waits to be ended.
SHOWN = (
    "import os; print('penstock ready', *map(os.environ.get, ('NOTIFY_SOCKET', 'KEPT')), flush=True); input()"
)


async def test_a_worker_tells_the_service_manager_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is ready once all workers are, which the supervisor says."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/to/be/found")
    monkeypatch.setenv("KEPT", "kept")
    worker = Worker(1, [sys.executable, "-c", SHOWN])
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        assert await worker.urls == ["None", "kept"]
        worker.send(signal.SIGTERM)
