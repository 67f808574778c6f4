"""A pytest plugin, found by pytest where Penstock is installed: the fixture `penstock`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .server import Address


@pytest.fixture
def penstock() -> "Iterator[Address]":
    """A real server in this process, in memory, on free ports; gone after the test.

    `penstock.url` is its HTTP address, `penstock.ws` the WebSocket one, `penstock.pulsar` Pulsar's.
    """
    from .server import running  # only tests that ask for it pay for the server

    with running() as address:
        yield address
