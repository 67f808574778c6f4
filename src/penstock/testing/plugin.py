"""A pytest plugin, found by pytest where Penstock is installed: the fixture `penstock`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.broker.settings import BrokerSettings

    from .server import Address


@pytest.fixture
def penstock_settings() -> "BrokerSettings | None":
    """The broker's settings behind the fixture `penstock`; override it for others than the defaults."""
    return None


@pytest.fixture
def penstock(penstock_settings: "BrokerSettings | None") -> "Iterator[Address]":
    """A real server in this process, in memory, on free ports; gone after the test.

    `penstock.url` is its HTTP address, `penstock.ws` the WebSocket one, `penstock.pulsar` Pulsar's.
    """
    from .server import running  # only tests that ask for it pay for the server

    with running(broker=penstock_settings) as address:
        yield address
