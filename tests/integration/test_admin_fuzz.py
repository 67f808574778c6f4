"""Whatever is asked of the administrator's endpoint is answered as its description says."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.protocols.context import ServerContext
from penstock.runtime.clock import LoopClock
from penstock.server.reference import openapi
from penstock.testing.server import Address, running
from penstock.wire import entry as wire

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


DOCUMENT = openapi(ServerContext(Broker(MemoryStore(), MemoryStore(), wire, LoopClock())))

schema = schemathesis.openapi.from_dict(DOCUMENT).include(path_regex="^/(admin|lookup|health)")


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@schema.parametrize()
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_every_answer_is_as_described(case: schemathesis.Case, server: Address) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS)


def test_operations_are_named_apart() -> None:
    names = [operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert len(set(names)) == len(names)
