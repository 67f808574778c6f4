"""A pytest plugin, found by pytest if Penstock is installed: servers as fixtures.

`penstock_server` is one for each test, `penstock_module_server` for each module, `penstock_session_server` for all tests.
The marker `penstock` has their settings, by section of the configuration.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.broker.settings import BrokerSettings

    from .server import Running

MARKER = "penstock"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**sections): settings of the test's server, as broker={{'auto_create_namespaces': True}}",
    )


@pytest.fixture(scope="session")
def penstock_settings() -> "BrokerSettings | Mapping[str, Mapping[str, Any]] | None":
    """The settings behind the fixtures, by section of the configuration, or the broker's alone; override it for others
    than the defaults. Those of a marker count before it."""
    return None


@pytest.fixture
def penstock_server(request: pytest.FixtureRequest, penstock_settings: Any) -> "Iterator[Running]":
    """A real server in this process, in memory, on free ports; gone after the test.

    `url` is its HTTP address, `ws` the WebSocket one, `pulsar` Pulsar's; `publish`, `messages` and others ask it.
    """
    yield from _serve(request, penstock_settings)


@pytest.fixture(scope="module")
def penstock_module_server(request: pytest.FixtureRequest, penstock_settings: Any) -> "Iterator[Running]":
    """The same for all tests of a module: `create_topic` gives each its own topic."""
    yield from _serve(request, penstock_settings)


@pytest.fixture(scope="session")
def penstock_session_server(request: pytest.FixtureRequest, penstock_settings: Any) -> "Iterator[Running]":
    """The same for all tests: `create_topic` gives each its own topic. Its settings are `penstock_settings`."""
    yield from _serve(request, penstock_settings)


@pytest.fixture
def penstock(penstock_server: "Running") -> "Running":
    """The former name of `penstock_server`, which hides the package `penstock` in the test."""
    warnings.warn(
        "the fixture penstock is now penstock_server", pytest.PytestDeprecationWarning, stacklevel=2
    )
    return penstock_server


def _serve(request: pytest.FixtureRequest, given: Any) -> "Iterator[Running]":
    from .server import running  # only tests that ask for it pay for the server

    sections: dict[str, dict[str, Any]] = {}
    broker = None
    if isinstance(given, Mapping):
        sections = {name: dict(keys) for name, keys in given.items()}
    else:
        broker = given
    for mark in reversed(list(request.node.iter_markers(MARKER))):  # the closest last
        if mark.args:
            raise pytest.UsageError(f"the marker {MARKER} takes sections by name, as broker={{…}}")
        for name, keys in mark.kwargs.items():
            sections.setdefault(name, {}).update(keys)
    with running(broker=broker, settings=sections) as server:
        yield server
