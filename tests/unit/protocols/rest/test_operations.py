"""The interface's description."""

from typing import Any

from penstock.protocols.http.openapi import document
from penstock.protocols.rest.endpoint import OPERATIONS
from penstock.protocols.rest.operations import Paths, below


def refs(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        own = {tree["$ref"]} if "$ref" in tree else set()
        return own.union(*(refs(v) for v in tree.values()))
    if isinstance(tree, list):
        return set().union(*(refs(v) for v in tree))
    return set()


def test_every_reference_is_there_and_every_id_its_own() -> None:
    made = document(None, OPERATIONS)
    names = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert refs(made) <= names
    ids = [o["operationId"] for path in made["paths"].values() for o in path.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS)


def test_every_path_is_served() -> None:
    for operation in OPERATIONS:
        path = operation.path.replace("{domain}", "persistent").replace("{partition}", "0")
        target = Paths(OPERATIONS).locate(path.replace("{", "").replace("}", "").encode())
        assert target.operation == below(operation)


def test_errors_are_grouped_by_status() -> None:
    answers = document(None, OPERATIONS)["paths"]["/topics/{tenant}/{namespace}/{topic}"]["post"]["responses"]
    assert "42201" in answers["422"]["description"]
    assert {"200", "400", "404", "409", "413", "422", "503"} <= answers.keys()
