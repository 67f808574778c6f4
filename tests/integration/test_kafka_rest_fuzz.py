"""Whatever is asked of the Kafka REST endpoint is answered as its description says."""

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

from penstock.protocols.http.openapi import document
from penstock.protocols.kafka_rest.endpoint import OPERATIONS
from penstock.testing.server import Address, running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@schemathesis.serializer("application/x-kafka", "application/x-ndjson")
def _bytes(context: object, value: object) -> bytes:
    """Anything at all: mostly nonsense, as a stranger would send it."""
    return value if isinstance(value, bytes) else repr(value).encode(errors="replace")


schema = schemathesis.openapi.from_dict(document(None, OPERATIONS))


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@schema.parametrize()
@settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_every_answer_is_as_described(case: schemathesis.Case, server: Address) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS)
