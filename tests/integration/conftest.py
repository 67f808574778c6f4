"""One server a module in this process, and a topic of its own for a test, for modules that define no others."""

import itertools
from collections.abc import Iterator

import pytest

from penstock.testing.server import Address, running

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/topic-{next(_NUMBERS)}"
