"""What refusals of the cluster's admin REST mean."""

import httpx
import pytest

from penstock.engines.pulsar.admin import _refusal
from penstock.model.errors import ErrorKind


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "Topic not found", ErrorKind.TOPIC_NOT_FOUND),
        (409, "This topic already exists", ErrorKind.ALREADY_EXISTS),
        (412, "Topic name is not valid", ErrorKind.BAD_PARAMETER),
        (412, "Failed to find ownership for topic:persistent://a/b/c", ErrorKind.UNAVAILABLE),
        (503, "", ErrorKind.UNAVAILABLE),
        (500, "", ErrorKind.INTERNAL),
    ],
)
def test_kinds_of_refusals(status: int, reason: str, kind: ErrorKind) -> None:
    error = _refusal(httpx.Response(status, json={"reason": reason}), ErrorKind.TOPIC_NOT_FOUND)
    assert error.kind is kind
    assert error.message == f"the cluster refuses it with status {status}: {reason}"
