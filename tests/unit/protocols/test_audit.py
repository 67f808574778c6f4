"""The audit log says who and what, never a secret, and never without end."""

import logging

import pytest

from penstock.protocols.audit import REFUSALS_PER_MINUTE, Audit


def test_who_and_what(caplog: pytest.LogCaptureFixture) -> None:
    scope = {"method": "PUT", "path": "/admin/v2/tenants/t", "query_string": b"token=s", "client": ("::1", 5)}
    with caplog.at_level(logging.INFO, "penstock.audit"):
        Audit().changed("operator", scope, 204)
    (record,) = caplog.records
    said = vars(record)
    assert said["role"] == "operator"
    assert said["path"] == "/admin/v2/tenants/t"
    assert said["client"] == "::1"
    assert "token" not in str(said)


def test_refusals_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    audit = Audit(lambda: now)
    for _ in range(REFUSALS_PER_MINUTE + 7):
        audit.refused_credentials("no token")
    assert len(caplog.records) == REFUSALS_PER_MINUTE
    assert audit.unauthenticated == REFUSALS_PER_MINUTE + 7
    now += 61
    audit.refused_permission("r", "produce to", "persistent://a/b/c")
    kept_back, refused = caplog.records[-2:]
    assert vars(kept_back)["count"] == 7
    assert vars(refused)["role"] == "r"
