"""Declared operations, found again by method and path."""

from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.operations import Handlers, Table

table = Table("things")


@table.on("POST", "/things/{thing}/commit", summary="")
def commit() -> None: ...


@table.on("DELETE", "/things/{thing}/{part}", summary="")
def delete() -> None: ...


handlers = Handlers(table)


def found(method: str, path: str) -> Any:
    return handlers.find(method, path.split("/")[1:])


def test_a_path_is_found_with_what_its_names_stand_for() -> None:
    assert found("POST", "/things/a/commit") == (commit, {"thing": "a"})
    assert found("DELETE", "/things/a/b") == (delete, {"thing": "a", "part": "b"})


def test_a_method_that_the_exact_path_lacks_is_looked_for_at_paths_with_names() -> None:
    assert found("DELETE", "/things/a/commit") == (delete, {"thing": "a", "part": "commit"})


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
