"""The suite of `tests.conformance.engines` over the engine of a worker, before a process that owns the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.workers import owning

pytest.register_assert_rewrite("tests.conformance.engines")

from tests.conformance.engines import EngineSuite  # noqa: E402

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.settings import BrokerSettings  # noqa: E402
from penstock.engines.opening import open_worker  # noqa: E402
from penstock.model.worker import WorkerAccess  # noqa: E402


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerAccess]:
    with owning(tmp_path_factory.mktemp("owner")) as access:
        yield access


class TestWorker(EngineSuite):
    @pytest.fixture(autouse=True)
    def reach(self, owner: WorkerAccess) -> None:
        self.access = owner

    def make(self, folder: Path) -> Broker:
        return open_worker(self.access, BrokerSettings())
