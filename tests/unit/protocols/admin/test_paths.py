"""Paths of the admin API: which segments a pattern stands for, and what is refused."""

from penstock.protocols.admin.call import Call
from penstock.protocols.admin.operations import Refusal, Table
from penstock.protocols.admin.routes import Paths


async def _handler(call: Call) -> None:
    """Do nothing."""


def _paths() -> Paths:
    table = Table()
    table.on("GET", "/a/{domain}/{topic}", "/a/b/{bundle}/unload", "/a/b/{any}/c")(_handler)
    refusals = [
        Refusal(("GET", "POST"), ("/a/{domain}/{topic}",), "not here"),
        Refusal(("PUT",), ("/functions/**",), "none of these"),
    ]
    return Paths(table, refusals)


def test_a_domain_and_a_bundle_are_not_any_segment() -> None:
    paths = _paths()
    assert paths.find("GET", "/a/persistent/t").operation is not None
    assert paths.find("GET", "/a/non-persistent/t").operation is not None
    assert paths.find("GET", "/a/namespaces/t") == (None, {}, [], "")
    assert paths.find("GET", "/a/b/0x00000000_0xffffffff/unload").operation is not None
    assert paths.find("GET", "/a/b/whole/unload").operation is None


def test_another_pattern_is_tried_where_one_leads_nowhere() -> None:
    paths = _paths()
    assert paths.find("GET", "/a/b/0x00000000_0xffffffff/c").operation is not None
    assert paths.find("GET", "/a/b/x/c").operation is not None


def test_a_refusal_has_a_reason_and_the_methods_that_there_are() -> None:
    paths = _paths()
    found = paths.find("POST", "/a/persistent/t")
    assert (found.operation, found.methods, found.reason) == (None, ["GET"], "not here")
    assert paths.find("GET", "/a/persistent/t").operation is not None  # what is answered is not refused
    for path in ("/functions", "/functions/x", "/functions/x/y/z"):
        assert paths.find("GET", path).reason == "none of these"
    assert paths.find("GET", "/function").reason == ""
