"""The router of operations, and declared operations found again by method and path."""

import re
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.operations import Handlers, Router, Table

table = Table("things")


@table.on("POST", "/things/{thing}/commit", summary="")
def commit() -> None: ...


@table.on("DELETE", "/things/{thing}/{part}", summary="")
def delete() -> None: ...


handlers = Handlers(table)


def found(method: str, path: str) -> Any:
    return handlers.find(method, path.split("/")[1:])


def test_a_path_is_found_with_what_its_names_stand_for() -> None:
    assert found("POST", "/things/a/commit") == ("/things/{thing}/commit", commit, {"thing": "a"})
    assert found("DELETE", "/things/a/b") == ("/things/{thing}/{part}", delete, {"thing": "a", "part": "b"})


def test_a_method_that_the_exact_path_lacks_is_looked_for_at_paths_with_names() -> None:
    assert found("DELETE", "/things/a/commit") == (
        "/things/{thing}/{part}",
        delete,
        {"thing": "a", "part": "commit"},
    )


def test_a_method_that_is_nowhere_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RefusedError) as caught:
        found("GET", "/things/a/commit")
    assert caught.value.kind is ErrorKind.METHOD_NOT_ALLOWED
    assert caught.value.headers == {"allow": "POST, DELETE"}


@pytest.mark.parametrize("path", ["/things", "/things/a", "/other/a/commit"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(PenstockError) as caught:
        found("POST", path)
    assert caught.value.kind is ErrorKind.NOT_FOUND


def test_a_literal_segment_goes_before_a_name_and_every_match_is_found() -> None:
    router = Router(["/a/{x}/{y}", "/a/b/{y}", "/a/{x}/c"])
    assert router.find(["a", "b", "c"]) == ("/a/b/{y}", {"y": "c"})
    assert [path for path, _ in router.all(["a", "b", "c"])] == ["/a/b/{y}", "/a/{x}/c", "/a/{x}/{y}"]
    assert router.find(["a", "d", "e"]) == ("/a/{x}/{y}", {"x": "d", "y": "e"})


def test_the_number_of_segments_counts() -> None:
    router = Router(["", "/a", "/a/{x}"])
    assert router.find([]) == ("", {})
    assert router.find(["a"]) == ("/a", {})
    assert router.find(["b"]) is None
    assert router.find(["a", "b", "c"]) is None


def test_a_name_with_a_pattern_stands_for_what_fits_it() -> None:
    router = Router(["/{kind}/{x}", "/{other}/b"], {"kind": re.compile("one|two")})
    assert router.find(["one", "b"]) == ("/{kind}/{x}", {"kind": "one", "x": "b"})
    assert router.find(["three", "b"]) == ("/{other}/b", {"other": "three"})
    assert router.find(["three", "c"]) is None
