"""One server, and one program of each language, for all tests of this folder."""

from collections.abc import Iterator

import pytest
from tests.clients.users import User, user

from penstock.testing.server import Address, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is marked, and may take as long as a JVM needs on a busy machine."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(120))


@pytest.fixture(scope="session")
def clients_server() -> Iterator[Address]:
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def java(clients_server: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    with user("java", clients_server, tmp_path_factory.mktemp("java")) as program:
        yield program


@pytest.fixture(scope="session")
def go(clients_server: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    with user("go", clients_server, tmp_path_factory.mktemp("go")) as program:
        yield program


@pytest.fixture(scope="session")
def rust(clients_server: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    with user("rust", clients_server, tmp_path_factory.mktemp("rust")) as program:
        yield program
