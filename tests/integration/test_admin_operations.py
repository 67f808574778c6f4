"""Every operation of Pulsar's admin API is answered or refused with a reason, and docs/admin.md says which."""

from tests.integration.admin_operations import END, PAGE, operations, page

from penstock.protocols.admin.refusals import REFUSALS
from penstock.protocols.admin.routes import OPERATIONS
from penstock.protocols.http.openapi import document


def test_every_operation_of_pulsar_is_known() -> None:
    found = list(operations())
    assert len(found) > 350
    assert [f"{one.method} {one.path}" for one in found if not one.kind] == []


def test_a_refusal_refuses_nothing_that_is_answered() -> None:
    answered = {(operation.method, operation.path) for operation in OPERATIONS}
    for refusal in REFUSALS:
        assert refusal.reason
        assert refusal.reason[0].islower()
        assert not refusal.reason.endswith(".")
        for path in refusal.paths:
            assert [method for method in refusal.methods if (method, path) not in answered], path


def test_the_page_has_them_all() -> None:
    text = PAGE.read_text()
    assert END in text
    assert text == page(), "run `python -m tests.integration.admin_operations`"


def test_openapi_lists_what_is_answered() -> None:
    found = document(None, OPERATIONS)["paths"]
    for operation in OPERATIONS:
        assert operation.method.lower() in found[operation.path], operation.path
        assert operation.summary, operation.path
