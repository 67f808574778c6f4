"""Every operation of the OpenAPI document, asked by everybody: by nobody, with what is no token, by a stranger, and by
who may do everything."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.broker.settings import BrokerSettings
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.protocols.context import ServerContext
from penstock.protocols.limits import Limits
from penstock.runtime.clock import LoopClock
from penstock.server.reference import openapi
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running
from penstock.wire import entry as wire

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
EXAMPLES = 100 if SOAK else 2
WRONG = (None, "Bearer garbage", "Bearer a.b.c", "Basic !") if SOAK else (None, "Bearer garbage")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPEN = ("/health/",)  # asks nobody who he is
# Hypothesis draws texts from the constants of loaded modules: root must not grant anything to this role by accident.
STRANGER = f"stranger-{uuid4().hex}"

DOCUMENT = openapi(ServerContext(Broker(MemoryStore(), MemoryStore(), wire, LoopClock())))
issuer = Issuer()


@schemathesis.serializer("application/vnd.penstock.sections", "application/x-kafka", "application/x-ndjson")
def _bytes(context: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode(errors="replace")


schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(
        auth=issuer.settings(super_users=("root",)),
        limits=Limits(max_wait_ms=20),
        broker=BrokerSettings(request_timeout_ms_max=20),
    ) as address:
        yield address


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate] if SOAK else [Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
def test_every_operation(case: schemathesis.Case, server: Address) -> None:
    _bounded(case)
    open_to_all = case.operation.path.startswith(OPEN)
    for given in WRONG:
        answer = _call(case, server, given)
        if open_to_all:
            continue
        # What can be seen from the request alone may be said before; nothing is done, and nothing fails.
        assert 400 <= answer.status_code < 500, (given, answer.status_code, answer.text)
        if answer.status_code == 401:
            assert "www-authenticate" in answer.headers
    stranger = _call(case, server, issuer.headers(STRANGER)["Authorization"])
    assert stranger.status_code < 500 or stranger.status_code == 503, stranger.text
    if not open_to_all and case.method in ("POST", "PUT", "DELETE"):
        # A partition more, a consumer less: nothing may change by a stranger's hand.
        assert stranger.status_code >= 400 or _asks_only(case), (stranger.status_code, stranger.text)
    answer = _call(case, server, issuer.headers("root")["Authorization"])
    case.validate_response(answer, checks=CHECKS)


def _bounded(case: schemathesis.Case) -> None:
    """Nothing that goes on for ever by its nature."""
    query: Any = case.query
    if query:
        query.pop("follow", None)
        query.pop("token", None)
    headers: Any = case.headers
    if headers:
        headers.pop("Authorization", None)


def _asks_only(case: schemathesis.Case) -> bool:
    """POST of questions: of patterns one hears what one may see, and that is nothing."""
    return case.operation.path in (
        "/topics/offsets",
        "/topics/records",
        "/topics/sizes",
        "/topics/cursors",
        "/stages",
    )


def _call(case: schemathesis.Case, server: Address, given: str | None) -> Any:
    headers = {} if given is None else {"Authorization": given}
    return case.call(base_url=server.url, headers=headers, timeout=60)
